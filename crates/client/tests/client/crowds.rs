//! Many concurrent callers, which the cases do not cover: without a server their loads are shared, and with a server every
//! loaded row is cached.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use bloomgate_client::{Client, Guard, GuardOptions, aio};
use tokio::runtime::Builder;

use crate::PATIENCE;
use testing::{Server, servers};

/// A table that counts the loads of each row, and how many of them run at once. The value of a row is the number of its load.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<HashMap<u64, Loads>>>);

#[derive(Default)]
struct Loads {
    begun: usize,
    running: usize,
    most_running: usize,
}

impl Table {
    fn begin(&self, id: u64) -> usize {
        let mut table = self.0.lock().unwrap();
        let loads = table.entry(id).or_default();
        loads.begun += 1;
        loads.running += 1;
        loads.most_running = loads.most_running.max(loads.running);
        loads.begun
    }

    fn end(&self, id: u64) {
        self.0.lock().unwrap().get_mut(&id).unwrap().running -= 1;
    }

    /// Returns how many loads of a row have begun.
    fn begun(&self, id: u64) -> usize {
        self.0.lock().unwrap().get(&id).map_or(0, |loads| loads.begun)
    }

    /// Loads a row, which takes a while.
    fn load(&self, id: u64) -> Result<Option<Vec<u8>>, String> {
        let number = self.begin(id);
        thread::sleep(Duration::from_millis(20));
        self.end(id);
        Ok(Some(number.to_string().into_bytes()))
    }

    fn load_many(&self, ids: &[u64]) -> Result<HashMap<u64, Vec<u8>>, String> {
        let rows: HashMap<_, _> = ids.iter().map(|id| (*id, self.begin(*id).to_string().into_bytes())).collect();
        thread::sleep(Duration::from_millis(20));
        ids.iter().for_each(|id| self.end(*id));
        Ok(rows)
    }

    fn is_never_loaded_twice_at_once(&self) {
        for (id, loads) in self.0.lock().unwrap().iter() {
            assert_eq!((loads.running, loads.most_running), (0, 1), "row {id}");
        }
    }
}

/// Checks a row: its load began after the call. `before` loads had begun when the call began.
fn is_fresh(row: Option<Vec<u8>>, before: usize) {
    let number: usize = String::from_utf8(row.unwrap()).unwrap().parse().unwrap();
    assert!(number > before, "a call after {before} loads got the row of load {number}");
}

/// No server listens at this address.
const NO_SERVER: &str = "redis://127.0.0.1:1";

/// A hung server: connections stay in its queue.
fn hung() -> (TcpListener, String) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    (silent, url)
}

#[test]
fn without_a_server_threads_share_one_load_at_a_time() {
    let (_silent, hung) = hung();
    for url in [NO_SERVER, &hung] {
        threads_share_loads(url);
    }
}

fn threads_share_loads(url: &str) {
    let client = Client::open(url).unwrap().with_timeout(Duration::from_millis(300));
    let (table, guard) = (Table::default(), Guard::new(&client, "rows", options()).unwrap());
    thread::scope(|scope| {
        for caller in 0..300 {
            let (table, guard) = (&table, &guard);
            scope.spawn(move || {
                for _ in 0..3 {
                    let before = table.begun(1);
                    is_fresh(guard.get(1, |id| table.load(id)).unwrap(), before);
                    // Each call requests another part of the rows, in another order.
                    let ids: Vec<u64> = (0..4).map(|row| 2 + (row * 3 + caller) % 7).collect();
                    let before: Vec<_> = ids.iter().map(|id| table.begun(*id)).collect();
                    let rows = guard.get_many(&ids, |ids| table.load_many(ids)).unwrap();
                    rows.into_iter().zip(before).for_each(|(row, before)| is_fresh(row, before));
                }
            });
        }
    });
    table.is_never_loaded_twice_at_once();
    assert!(table.begun(1) <= 90, "{} loads for 900 calls", table.begun(1));
}

#[test]
fn without_a_server_tasks_share_one_load_at_a_time() {
    let (_silent, hung) = hung();
    for url in [NO_SERVER, &hung] {
        tasks_share_loads(url);
    }
}

fn tasks_share_loads(url: &str) {
    let table = Table::default();
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = aio::Client::open(url).unwrap().with_timeout(Duration::from_millis(300));
        let guard = aio::Guard::new(&client, "rows", options()).unwrap();
        let call = |_| {
            let (table, guard) = (table.clone(), guard.clone());
            tokio::spawn(async move {
                let before = table.begun(1);
                let load = |_| async {
                    let number = table.begin(1);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    table.end(1);
                    Ok::<_, String>(Some(number.to_string().into_bytes()))
                };
                is_fresh(guard.get(1_u64, load).await.unwrap(), before);
            })
        };
        for call in (0..1000).map(call).collect::<Vec<_>>() {
            call.await.unwrap();
        }
    });
    table.is_never_loaded_twice_at_once();
    assert!(table.begun(1) <= 100, "{} loads for 1000 calls", table.begun(1));
}

/// A call inside a load does not wait for other loads, because they might wait for its own.
#[test]
fn loads_that_read_each_others_rows_end() {
    let guard = Guard::new(&Client::open(NO_SERVER).unwrap(), "rows", options()).unwrap();
    let (ended, end) = channel();
    let both = Arc::new(Barrier::new(2));
    for id in [1_u64, 2] {
        let (guard, ended, both) = (guard.clone(), ended.clone(), Arc::clone(&both));
        thread::spawn(move || {
            let outer = |id: u64| {
                both.wait();
                guard.get(3 - id, |_| Ok::<_, String>(Some(b"inner".to_vec())))
            };
            // The test may have ended.
            _ = ended.send(guard.get(id, outer).unwrap());
        });
    }
    for _ in 0..2 {
        assert_eq!(end.recv_timeout(PATIENCE).unwrap(), Some(b"inner".to_vec()));
    }
}

/// Rows of a burst are filled together, so that no fill times out in the client's own queue.
#[test]
fn a_burst_of_rows_is_cached() {
    const ROWS: u64 = 10_000;
    let server = Server::start(&servers()[0]);
    let mut other = server.connect();
    other.run("BF.RESERVE {rows} 0.0001 20000");
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = aio::Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
        aio::Filter::new(&client, "{rows}").add_many(0..ROWS).await.unwrap();
        let guard = aio::Guard::new(&client, "{rows}", options()).unwrap();
        let loading = Arc::new(AtomicUsize::new(0));
        let call = |id: u64| {
            let (guard, loading) = (guard.clone(), Arc::clone(&loading));
            tokio::spawn(async move {
                let load = |id: u64| async move {
                    loading.fetch_add(1, Ordering::SeqCst);
                    while loading.load(Ordering::SeqCst) < ROWS as usize {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    Ok::<_, String>(Some(id.to_string().into_bytes()))
                };
                guard.get(id, load).await
            })
        };
        for (id, call) in (0..ROWS).map(call).collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), Some(id.to_string().into_bytes()));
        }
    });
    let cached = (0..ROWS).filter(|id| other.run(&format!("EXISTS {{rows}}:{id}")).number() == 1).count() as u64;
    assert_eq!(cached, ROWS);
    assert_eq!(other.info_number("bf_bloom_leases"), 0);
}

fn options() -> GuardOptions {
    GuardOptions { beta: 0.0, ..GuardOptions::default() }
}
