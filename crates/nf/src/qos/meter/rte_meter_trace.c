/* Computes the constants of rte_meter.rs with rte_meter of DPDK on a clock of 1 GHz:
 * cc rte_meter_trace.c $(pkg-config --cflags libdpdk) -l:librte_meter.a -lm && ./a.out */
#include <inttypes.h>
#include <stdio.h>
#include <rte_meter.h>

uint64_t rte_get_tsc_hz(void) { return 1000000000; }

static uint64_t state;

static uint64_t number(uint64_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 20) % below;
}

static uint64_t rate(void)
{
	static const uint64_t most[] = {1000, 100000000, 100000000000};
	return 1 + number(most[number(3)]);
}

static uint64_t trace(int kind)
{
	uint64_t hash = 0xcbf29ce484222325u;
	state = kind;
	for (int round = 0; round < 1000; round++) {
		struct rte_meter_srtcm_profile p0;
		struct rte_meter_trtcm_profile p1;
		struct rte_meter_trtcm_rfc4115_profile p2;
		uint64_t first = rate(), second = rate(), b0 = 1 + number(5000), b1 = 1 + number(5000), now = 0;
		struct rte_meter_srtcm_params s = {first, b0, b1};
		struct rte_meter_trtcm_params t = {first, first + second, b0, b1};
		struct rte_meter_trtcm_rfc4115_params r = {first, second, b0, b1};
		int error = rte_meter_srtcm_profile_config(&p0, &s) | rte_meter_trtcm_profile_config(&p1, &t)
			| rte_meter_trtcm_rfc4115_profile_config(&p2, &r);
		if (error)
			return 0;
		struct rte_meter_srtcm m0 = {0, b0, b1};
		struct rte_meter_trtcm m1 = {0, 0, b0, b1};
		struct rte_meter_trtcm_rfc4115 m2 = {0, 0, b0, b1};
		for (int packet = 0; packet < 200; packet++) {
			now += number(number(4) ? 20000 : 50000000);
			uint32_t bytes = number(2000);
			enum rte_color before = number(3);
			enum rte_color colour = kind == 0 ? rte_meter_srtcm_color_aware_check(&m0, &p0, now, bytes, before)
				: kind == 1 ? rte_meter_trtcm_color_aware_check(&m1, &p1, now, bytes, before)
				: rte_meter_trtcm_rfc4115_color_aware_check(&m2, &p2, now, bytes, before);
			uint64_t tokens = kind == 0 ? m0.tc ^ m0.te << 32 : kind == 1 ? m1.tc ^ m1.tp << 32 : m2.tc ^ m2.te << 32;
			hash = (hash ^ colour) * 0x100000001b3u;
			hash = (hash ^ tokens) * 0x100000001b3u;
		}
	}
	return hash;
}

int main(void)
{
	for (int kind = 0; kind < 3; kind++)
		printf("0x%016" PRIx64 "\n", trace(kind));
}
