//! Writes manual pages and shell completions of `bondstone` to `man1`, `bash`, `zsh` and `fish` in a folder:
//! `cli_pages FOLDER`.

use clap::Command;
use clap_complete::Shell;
use clap_mangen::{Man, roff::Roff, roff::roman};
use std::fs::{File, create_dir_all};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let folder: PathBuf = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: cli_pages FOLDER"))?.into();
    // completions would offer hidden commands
    let visible = bondstone_cli::command();
    let visible = visible.get_subcommands().filter(|below| !below.is_hide_set()).cloned();
    let mut visible = Command::new("bondstone").version(env!("CARGO_PKG_VERSION")).subcommands(visible);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let folder = folder.join(shell.to_string());
        create_dir_all(&folder)?;
        clap_complete::generate_to(shell, &mut visible, "bondstone", folder)?;
    }
    let pages = folder.join("man1");
    create_dir_all(&pages)?;
    // otherwise there is a page for the help of each command
    let mut command = bondstone_cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &pages)
}

/// Writes the page of a command, and of those below it.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, folder)?;
    }
    let page = Man::new(command.clone()).source(concat!("bondstone ", env!("CARGO_PKG_VERSION")));
    let mut to = File::create(folder.join(page.get_filename()))?;
    page.render_title(&mut to)?;
    page.render_name_section(&mut to)?;
    page.render_synopsis_section(&mut to)?;
    page.render_description_section(&mut to)?;
    page.render_options_section(&mut to)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut to)?;
    }
    if let Some(text) = command.get_after_help() {
        // with its own line breaks, unlike `Man::render_extra_section`
        let mut notes = Roff::new();
        notes.control("SH", ["NOTES"]).control("nf", []);
        for line in text.to_string().lines() {
            notes.text([roman(line)]);
        }
        notes.control("fi", []);
        notes.to_writer(&mut to)?;
    }
    to.flush()
}
