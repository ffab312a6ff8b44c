//! Manual pages and completions.

use crate::running::run;

#[test]
fn every_subcommand_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    run([std::ffi::OsStr::new("man"), folder.path().as_os_str()]).well();
    let help = run(["--help"]).well().text();
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
fn shells_are_told_of_every_option() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(["completions", shell]).well().text();
        assert!(script.contains("survey") && script.contains("cacert"), "{shell}: {script}");
    }
}
