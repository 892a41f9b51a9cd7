"""Compares the trial time of Bondstone's search with FD.io's MLRsearch on simulated devices: see mlrsearch.sh."""

import json
import statistics
import subprocess
import sys

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

PROGRAM, SEEDS = sys.argv[1], int(sys.argv[2])


class Device(AbstractMeasurer):
    """A simulated device in another process."""

    def __init__(self, text):
        self.process = subprocess.Popen(
            [PROGRAM, "device", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.trials, self.seconds = 0, 0.0

    def measure(self, intended_duration, intended_load):
        self.process.stdin.write(f"{intended_load} {intended_duration}\n")
        self.process.stdin.flush()
        intended, lost = map(int, self.process.stdout.readline().split())
        self.trials += 1
        self.seconds += intended_duration
        return MeasurementResult(intended_duration, intended_load, offered_count=intended, loss_count=lost)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def theirs(ours):
    config = Config()
    config.goals = [
        SearchGoal(
            loss_ratio=ours["loss_ratio"],
            exceed_ratio=ours["exceed_ratio"],
            relative_width=ours["width"],
            initial_trial_duration=ours["initial_s"],
            final_trial_duration=ours["final_s"],
            duration_sum=ours["sum_s"],
            fail_fast=False,
        )
    ]
    config.max_load, config.min_load = ours["max_pps"], ours["min_pps"]
    config.warmup_duration = None
    device = Device(ours["device"])
    result = next(iter(MultipleLossRatioSearch(config).search(device, debug=lambda _: None).values()))
    device.close()
    load = lambda bound: None if bound is None else float(bound)
    return {
        "trials": device.trials,
        "traffic_s": device.seconds,
        "lower": load(result.relevant_lower_bound),
        "upper": load(result.relevant_upper_bound),
    }


def is_right(bounds, ours):
    lower, upper = bounds["lower"] or 0.0, bounds["upper"] or ours["max_pps"]
    return lower <= ours["high"] and upper >= ours["low"]


def main():
    lines = subprocess.run([PROGRAM, "ours", str(SEEDS)], check=True, capture_output=True, text=True).stdout
    settings = {}
    for line in lines.splitlines():
        ours = json.loads(line)
        key = (ours["kind"], ours["device"].rsplit(",seed", 1)[0], ours["goal"])
        settings.setdefault(key, []).append((ours, theirs(ours)))
    ratios, wrong = [], [0, 0]
    print(f"{'':8}  {'device':58}  goal   trials ours theirs   seconds ours  theirs  ratio  right ours theirs")
    for (kind, device, goal), pairs in settings.items():
        mean = lambda side, name: statistics.mean(pair[side][name] for pair in pairs)
        right = [sum(is_right(pair[side], pair[0]) for pair in pairs) for side in (0, 1)]
        ratio = mean(0, "traffic_s") / mean(1, "traffic_s")
        ratios.append(ratio)
        wrong = [count + len(pairs) - side for count, side in zip(wrong, right)]
        print(
            f"{kind:8}  {device:58}  {goal:5}  {mean(0, 'trials'):11.1f} {mean(1, 'trials'):6.1f}"
            f"  {mean(0, 'traffic_s'):13.2f} {mean(1, 'traffic_s'):7.2f}  {ratio:5.2f}"
            f"  {right[0]:5}/{len(pairs)} {right[1]:3}/{len(pairs)}"
        )
    ratios.sort()
    print(
        f"{len(ratios)} settings, {SEEDS} seeds: trial time of ours over theirs: median {statistics.median(ratios):.2f},"
        f" lowest {ratios[0]:.2f}, highest {ratios[-1]:.2f}; results outside the right span: {wrong[0]} of ours,"
        f" {wrong[1]} of theirs"
    )


main()
