//! Pages of the documentation whose commands are tests.

use std::path::Path;

/// Returns the commands of a page of the documentation, and the files that it has, by name.
pub(crate) fn page(name: &str) -> (Vec<String>, Vec<(String, String)>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = std::fs::read_to_string(file).unwrap();
    let (mut commands, mut files) = (vec![], vec![]);
    let mut name = String::new();
    let mut block: Option<(String, String)> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut block) {
            (Some(language), None) => block = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => match block.take().unwrap() {
                (language, text) if language == "console" => commands.extend(text.lines().map(str::to_owned)),
                (_, text) if !name.is_empty() => files.push((std::mem::take(&mut name), text)),
                _ => {}
            },
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {
                let is_file = |word: &&str| [".conf", ".toml", ".json", ".sh"].iter().any(|end| word.ends_with(end));
                let named = line.split('`').skip(1).step_by(2).find(is_file);
                if line.starts_with("**")
                    && let Some(named) = named
                {
                    name = named.to_owned();
                }
            }
        }
    }
    (commands, files)
}
