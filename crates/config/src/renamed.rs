//! Words of chain and scenario files that were renamed, so that errors can name the present word.

/// Old and new names of keys, settings, values, outputs and NF kinds.
const RENAMED: &[(&str, &str)] = &[
    ("addresses", "mac_entries"),
    ("age", "ageing_time"),
    ("at_least", "min"),
    ("at_most", "max"),
    ("both_ways", "bidirectional"),
    ("check", "check_address"),
    ("every", "interval"),
    ("external", "command"),
    ("form", "thoroughness"),
    ("fragment", "fragment_size"),
    ("given", "requires"),
    ("inner", "interfaces"),
    ("late", "reorder"),
    ("late_by", "reorder_delay"),
    ("lifetime", "reachable_time"),
    ("line", "line_rate_bps"),
    ("measure", "metric"),
    ("neighbours", "neighbours_max"),
    ("noted", "metadata"),
    ("only", "filter"),
    ("other", "unmatched"),
    ("over", "divided_by"),
    ("ovs-dpdk", "ovs"),
    ("queue", "neighbour_queue"),
    ("says", "text"),
    ("seconds", "duration_s"),
    ("station", "mac_table"),
    ("stations", "mac_table_file"),
    ("untestable", "not_testable"),
    ("wall", "sandbox"),
    ("within", "tolerance"),
];

/// Returns the new name of `old` if it is one of the words that are `valid` in its place.
pub(crate) fn new_name<'a>(old: &str, mut valid: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    valid.find(|valid| RENAMED.iter().any(|(from, to)| *from == old && to == valid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_new_word_where_it_is_valid() {
        assert_eq!(new_name("wall", ["port", "sandbox"].into_iter()), Some("sandbox"));
        assert_eq!(new_name("wall", ["port"].into_iter()), None);
        assert_eq!(new_name("sandbox", ["sandbox"].into_iter()), None);
    }

    #[test]
    fn no_word_is_renamed_to_itself() {
        assert!(RENAMED.iter().all(|(from, to)| from != to));
    }
}
