//! Quality of service: policing, shaping and scheduling of classes of packets.

mod class;
mod gaps;
mod headers;
mod meter;
mod pacer;
mod police;
mod queue;
mod rates;
mod schedule;
mod shape;
mod subscriber;

pub use police::Police;
pub use schedule::Schedule;
pub use shape::Shape;

#[cfg(test)]
mod tests {
    use testkit::HarnessBuilder;

    #[test]
    fn examples_of_the_documentation_are_valid() {
        for (kind, page) in [
            ("police", include_str!("../../../docs/reference/nfs/police.md")),
            ("shape", include_str!("../../../docs/reference/nfs/shape.md")),
            ("schedule", include_str!("../../../docs/reference/nfs/schedule.md")),
        ] {
            let (_, example) = page.split_once("```toml\n").unwrap();
            let (example, _) = example.split_once("```").unwrap();
            let mut file: toml::Table = toml::from_str(example).unwrap();
            let settings = file["nf"][kind].as_table_mut().unwrap();
            assert_eq!(settings.remove("kind").unwrap().as_str(), Some(kind));
            let registry = crate::registry();
            let kind = registry.iter().find(|known| known.name == kind).unwrap();
            HarnessBuilder::from_kind(kind, &toml::to_string(settings).unwrap()).build().unwrap();
        }
    }
}
