//! Manual pages and completions.

use crate::running::{Ended, command, run};

#[test]
fn every_subcommand_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    run([std::ffi::OsStr::new("man"), folder.path().as_os_str()]).success();
    let help = run(["--help"]).success().text();
    let words = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut pages = 0;
    for word in words.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help") {
        let page = std::fs::read_to_string(folder.path().join(format!("bloomgate-{word}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains("\\-\\-url"), "{word}: {page}");
        pages += 1;
    }
    assert!(pages > 3, "{help}");
}

#[test]
fn without_a_folder_the_manual_page_is_printed_and_no_file_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let ended = Ended::from(command(["man"]).current_dir(folder.path()).output().unwrap()).success();
    assert!(ended.text().contains(".SH NAME") && ended.text().contains("bloomgate"), "{}", ended.text());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_page_of_a_subcommand_is_printed_and_no_folder_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let man = |what: &str| Ended::from(command(["man", what]).current_dir(folder.path()).output().unwrap());
    let page = man("load").success().text();
    assert!(
        page.contains(".TH bloomgate-load") && page.contains("\\-\\-resume") && page.contains("\\-\\-url"),
        "{page}"
    );
    man("laod").misused("there is no subcommand and no folder laod");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn completions_cover_every_option() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(["completions", shell]).success().text();
        assert!(script.contains("survey") && script.contains("cacert"), "{shell}: {script}");
    }
}
