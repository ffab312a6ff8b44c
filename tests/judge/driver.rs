//! The judge's driver for the Rust crate in threads. README.md has the protocol.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;
use std::{env, thread};

use bloomgate_client::{Client, Durability, Guard, GuardOptions, Json};
use serde::Serialize;
use serde_json::{Value, json};

type Rows = HashMap<String, String>;
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

static LAST: AtomicU64 = AtomicU64::new(0);
static ANSWERS: Mutex<BTreeMap<u64, mpsc::Sender<Value>>> = Mutex::new(BTreeMap::new());

fn tell(word: &str, number: u64, value: impl Serialize) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", json!([word, number, value]))
}

fn ask(word: &str, value: impl Serialize) -> Result<Rows> {
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let (answered, answer) = mpsc::channel();
    ANSWERS.lock().unwrap_or_else(PoisonError::into_inner).insert(number, answered);
    tell(word, number, value)?;
    Ok(serde_json::from_value::<Option<Rows>>(answer.recv()?)?.unwrap_or_default())
}

fn call(guard: &Guard<Json<String>>, soft_timeout: Duration, word: &str, number: u64, value: Value) -> Result<()> {
    let ids: Vec<String> = serde_json::from_value(value)?;
    let rows = if word == "write" {
        guard.changed(&ids, || ask("commit", number))?;
        Vec::new()
    } else if let [id] = ids.as_slice() {
        let load = |id: String| ask("load", [&id]).map(|mut rows| rows.remove(&id));
        vec![guard.get_with_soft_timeout(id.clone(), soft_timeout, load)?]
    } else {
        guard.get_many(&ids, |ids: &[String]| ask("load", ids))?
    };
    Ok(tell(word, number, ids.into_iter().zip(rows).collect::<BTreeMap<_, _>>())?)
}

fn main() -> Result<()> {
    let settings: Value = serde_json::from_str(&env::args().nth(1).ok_or("usage: judge_driver SETTINGS")?)?;
    let setting = |name: &str| settings.pointer(name).ok_or_else(|| format!("no {name}"));
    let url = format!("redis://{}", setting("/address")?.as_str().unwrap_or_default());
    let client = if setting("/cluster")? == true { Client::cluster([url])? } else { Client::open(url)? };
    let time = |name: &str| Duration::from_secs_f64(setting(name).ok().and_then(Value::as_f64).unwrap_or_default());
    let replicas = u32::try_from(setting("/guard/replicas")?.as_u64().unwrap_or_default())?;
    let options = GuardOptions {
        ttl: time("/guard/ttl"),
        absent_ttl: time("/guard/absent_ttl"),
        lease: time("/guard/lease"),
        wait: time("/guard/wait"),
        patience: time("/guard/patience"),
        fail_safe: time("/guard/fail_safe"),
        announce_to: vec![b"{rows}~filling".to_vec()],
        durability: Durability { replicas, ..Durability::default() },
        ..GuardOptions::default()
    };
    let (guard, soft_timeout) =
        (Guard::with_codec(&client, "rows", Json::default(), options)?, time("/guard/soft_timeout"));
    tell("ready", 0, ())?;
    for line in io::stdin().lines() {
        let (word, number, value): (String, u64, Value) = serde_json::from_str(&line?)?;
        if word == "row" || word == "fail" {
            let answered = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
            answered.ok_or("an answer without a question")?.send(value)?;
        } else if word == "read" || word == "write" {
            let guard = guard.clone();
            thread::spawn(move || {
                call(&guard, soft_timeout, &word, number, value)
                    .or_else(|error| tell("error", number, error.to_string()))
            });
        }
    }
    Ok(())
}
