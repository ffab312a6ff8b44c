//! The code in `docs/guard.md` is that of the example, which is tested.

use std::fs;
use std::path::Path;

#[test]
fn the_documentation_shows_the_code_of_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(root.join(name)).expect(name);
    let (page, example) = (read("docs/guard.md"), read("examples/guard.py"));
    let (_, rest) =
        page.split_once("from [examples/guard.py](../examples/guard.py):\n\n```python\n").expect("code after the link");
    let (code, _) = rest.split_once("```\n").expect("the end of the code");
    assert!(example.contains(code.trim_end()), "the example does not have this:\n{code}");
}
