//! A second `loadmodule` of a module named `bf`. A module that reports an error at the start of the server ends the server, so this
//! decides whether the second load is a mistake or a repetition.
//!
//! A repetition is common: CONFIG REWRITE, which Sentinel sends, writes a `loadmodule` line for each loaded module, and a server whose
//! command line also has `--loadmodule` then loads the library twice.

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bloomgate_filter::arguments::load_time;

use crate::api::{self, Element, Reply};
use crate::args::Args;
use crate::context::{Context, LogLevel};
use crate::server_info::ServerInfo;

/// Whether this library is loaded. The system maps a file once, so a second load of it, under any path, finds this set.
static IS_LOADED: AtomicBool = AtomicBool::new(false);

/// Records that this library is loaded.
pub fn record_load() {
    IS_LOADED.store(true, Relaxed);
}

/// Ignores a load if a module of this name is loaded, and the load repeats that or yields to it (`UNLESS_LOADED yes`). Otherwise the
/// error is a line for the log that says what is loaded.
///
/// To the server, the load has succeeded. It does not enter a second module of a name into its table, so the one that it gets is never
/// used, and some hundred bytes are lost. A server that checked this would end, as it does after an error.
pub fn ignore(context: Context, name: &CStr, version: i32, words: Args<'_>) -> Result<(), String> {
    let list = Reply::to_module_list(context);
    let loaded = list.as_ref().and_then(|list| Loaded::find(list, name));
    let loaded = loaded.ok_or("another module named 'bf' is already loaded: load only one")?;
    let path = String::from_utf8_lossy(loaded.path);
    let is_ours = IS_LOADED.load(Relaxed);
    let repeats = is_ours && words.words().iter().map(|word| word.bytes()).eq(loaded.words());
    if is_starting(context) && (repeats || load_time::parse(words.words())?.unless_loaded) {
        api::set_attributes(context, name, version);
        let line =
            format!("bloomgate: the module 'bf' is already loaded, from {path}; this loadmodule line has no effect");
        context.log(LogLevel::Notice, line);
        return Ok(());
    }
    if !is_ours {
        return Err(format!("another module named 'bf' is already loaded, from {path}: load only one"));
    }
    let words: Vec<Cow<'_, str>> = loaded.words().map(String::from_utf8_lossy).collect();
    Err(format!("this library is already loaded, as: loadmodule {path} {}", words.join(" ")).trim_end().to_owned())
}

/// Whether the server is starting. Later a client asks for the load (MODULE LOAD), and gets the error.
fn is_starting(context: Context) -> bool {
    ServerInfo::of(context, c"clients").and_then(|clients| clients.number(c"connected_clients")) == Some(0)
}

/// The entry of a loaded module in MODULE LIST.
struct Loaded<'a> {
    path: &'a [u8],
    words: Option<Element<'a>>,
}

impl<'a> Loaded<'a> {
    fn find(list: &'a Reply, name: &CStr) -> Option<Self> {
        list.elements().find_map(|module| {
            let fields: Vec<Element<'_>> = module.elements().collect();
            let field = |wanted: &[u8]| {
                let pairs = fields.chunks_exact(2);
                pairs.flat_map(<&[_; 2]>::try_from).find(|[field, _]| field.bytes() == wanted).map(|[_, value]| *value)
            };
            let is_wanted = field(b"name")?.bytes() == name.to_bytes();
            is_wanted.then(|| Self {
                path: field(b"path").map_or(b"an unknown path", Element::bytes),
                words: field(b"args"),
            })
        })
    }

    fn words(&self) -> impl Iterator<Item = &'a [u8]> {
        self.words.into_iter().flat_map(Element::elements).map(Element::bytes)
    }
}
