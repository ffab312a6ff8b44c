//! Random walks of the model, repeated on real servers: every reply must equal the model's. They verify that the model's commands match
//! `src/commands`.
//!
//! A server serves waiters in the same iteration of its event loop, so a walk does, too. Steps do not need a clock: GIVEUP with a token
//! ends its lease early, so that the load outlives the lease; a NONE or a back-off ends early by eviction (`bf.max-leases`).

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use stateright::Model;
use testing::{Connection, Reply, Rng, Server, array, bulk, eventually, nil, ok, on_every_server, servers};

use crate::checks::size;
use crate::checks::{SCENARIOS, Scenario, Size, adds, fresh, heartbeat, in_flight, parts, refill, stores, writes};
use crate::server::{Answer, Fill, How, Name, Record};
use crate::world::{Action, Phase, Refill, Rule, State, World};
use crate::writers::Step;

/// The maximum number of steps of a walk.
const STEPS: usize = 120;

/// Whether a walk can take this step on a server.
fn is_playable(state: &State, action: Action) -> bool {
    match action {
        // Only the passing of time causes these.
        Action::Deadline(_) => false,
        // These are in the server tests.
        Action::Restart | Action::LeaveNode => false,
        Action::ExpireRecord(key) if matches!(state.server.keys[usize::from(key)].record, Some(Record::Lease(..))) => {
            true
        }
        Action::ExpireRecord(_) => can_evict(state),
        Action::Tick => {
            let mut ending = state.server.keys.iter().filter(|slot| slot.is_no_longer_fresh(state.follower.period + 1));
            ending.all(|slot| matches!(slot.record, Some(Record::Lease(..))) || can_evict(state))
        }
        _ => true,
    }
}

/// Any record may be evicted, which voids its tokens: so there must be only one record, and no token.
fn can_evict(state: &State) -> bool {
    state.server.keys.iter().filter(|slot| slot.record.is_some()).count() == 1
        && !state.server.tokens.iter().flatten().any(|token| token.is_safe)
}

/// A walk from one of the initial states.
fn walk(stage: &mut Stage, world: &World, random: &mut Rng) {
    let starts = world.init_states();
    let mut state = starts[random.below(starts.len() as u64) as usize].clone();
    stage.begin(world, state.row.is_present());
    let mut walked = Vec::new();
    for _ in 0..STEPS {
        let mut actions = Vec::new();
        world.actions(&state, &mut actions);
        actions.retain(|action| is_playable(&state, *action));
        if actions.is_empty() {
            return;
        }
        let any = random.below(actions.len() as u64) as usize;
        let action = actions.iter().copied().find(|action| *action == Action::Serve).unwrap_or(actions[any]);
        walked.push(action);
        let next = world.next_state(&state, action).unwrap();
        if let Err(fault) = catch_unwind(AssertUnwindSafe(|| stage.play(world, &state, action, &next))) {
            eprintln!("the walk: {walked:?}\nits last state: {state:?}");
            resume_unwind(fault);
        }
        state = next;
    }
}

fn walks() -> u64 {
    if size() == Size::Large { 40 } else { 10 }
}

#[test]
fn a_server_answers_as_the_model_does() {
    let expected = [
        "Absent",
        "Accepted",
        "Announce",
        "Ask",
        "BackOff",
        "Beat",
        "Blocked",
        "Collide",
        "DelArrives",
        "Die",
        "ExpireBeat",
        "ExpireRecord",
        "ExpireValue",
        "Fill",
        "FillAndKeep",
        "GiveUp",
        "Held",
        "Hit",
        "Load",
        "Lose",
        "Refill",
        "Refused",
        "Serve",
        "Stale",
        "TakeTime",
        "Tick",
        "Vanish",
        "Wait",
        "Write",
    ];
    on_every_server(|program| {
        let mut stage = Stage::new(Server::start(program));
        for (_, scenario) in SCENARIOS {
            let world = scenario(Size::Large, None);
            for seed in 0..walks() {
                walk(&mut stage, &world, &mut Rng::new(seed));
            }
        }
        assert_eq!(stage.seen.iter().map(String::as_str).collect::<Vec<_>>(), expected, "not everything came up");
    });
}

/// A model without one of the module's rules must differ from the server. So the walks would also detect a module without the rule.
#[test]
fn a_rule_that_the_module_lacked_would_show() {
    let rules = [
        (Rule::CheckToken, writes as Scenario),
        (Rule::OutliveLease, writes),
        (Rule::DeleteValue, writes),
        (Rule::VoidTokens, writes),
        (Rule::EndNones, writes),
        (Rule::ChangeKey, parts),
        (Rule::ChangeItem, adds),
        (Rule::ChangeOnSet, stores),
        (Rule::ChangeFilter, refill),
        (Rule::OneLoader, writes),
        (Rule::KeepBackOff, writes),
        (Rule::GiveUnless, in_flight),
        (Rule::GiveWhile, heartbeat),
        (Rule::WhileCoversNones, heartbeat),
        (Rule::FreshIgnoresCache, fresh),
        (Rule::FreshOwnLease, fresh),
        (Rule::FreshVoided, fresh),
    ];
    let program = servers().remove(0);
    let mut stage = Stage::new(Server::start(&program));
    for (rule, scenario) in rules {
        // Without waiting clients, so that a difference appears in a reply.
        let world = scenario(Size::Large, Some(rule));
        let is_fresh = world.hows.contains(&How::Fresh);
        let hows = if is_fresh { vec![How::Fresh] } else { vec![How::Plain, How::Stale] };
        let world = World { hows, ..world };
        let shows = |seed| catch_unwind(AssertUnwindSafe(|| walk(&mut stage, &world, &mut Rng::new(seed)))).is_err();
        assert!((0..200).any(shows), "the walks do not notice: {rule:?}");
    }
}

const FILTER: &str = "{f}";
/// An empty filter. All others are copies of it, so that they have the same hash key.
const EMPTY: &str = "{f}:empty";
/// The number of other items. They set all bits of a quarter of absent items.
const OTHERS: usize = 1000;

/// A server on which a walk is repeated.
pub struct Stage {
    server: Server,
    client: Connection,
    /// A connection and the last token of each reader.
    readers: Vec<(Connection, String)>,
    /// The last token of each cache key.
    last_tokens: HashMap<u8, String>,
    /// The item of the row, whose bits the other items set.
    item: String,
    asked: u64,
    /// The kinds of steps, replies and waits that have occurred.
    pub seen: BTreeSet<String>,
}

fn filter(name: Name) -> &'static str {
    if name == Name::Rows { FILTER } else { "{f}:filling" }
}

fn cache_key(key: u8) -> String {
    format!("{{f}}:{key}")
}

fn word(reply: &Reply) -> String {
    reply.elements()[0].text()
}

impl Stage {
    pub fn new(server: Server) -> Self {
        let client = server.connect();
        let (readers, last_tokens) = (Vec::new(), HashMap::new());
        Self { server, client, readers, last_tokens, item: String::new(), asked: 0, seen: BTreeSet::new() }
    }

    pub fn begin(&mut self, world: &World, has_row: bool) {
        // Clients of the previous walk must not get a lease.
        self.readers.clear();
        eventually("the clients to be gone", || self.waiting() == 0);
        self.client.run("FLUSHALL");
        self.client.run("CONFIG SET bf.max-leases 8");
        self.readers = (0..world.readers).map(|_| (self.server.connect(), String::new())).collect();
        self.client.run("BF.ADD {g} 1");
        self.run_ok(&format!("BF.RESERVE {EMPTY} 0.25 {OTHERS} HASH siphash"));
        self.copy("{f}:scratch");
        self.add_others("{f}:scratch");
        let item = (0..).map(|number| format!("row-{number}")).find(|item| self.may_have("{f}:scratch", item));
        self.item = item.unwrap();
        self.copy(FILTER);
        if has_row {
            assert!(self.client.run(&format!("BF.ADD {FILTER} {}", self.item)).truth());
        }
    }

    fn copy(&mut self, name: &str) {
        assert!(self.client.run(&format!("COPY {EMPTY} {name}")).truth());
    }

    fn add_others(&mut self, name: &str) {
        let items: Vec<String> = (0..OTHERS).map(|number| format!("other-{number}")).collect();
        self.client.run(&format!("BF.MADD {name} {}", items.join(" ")));
    }

    fn may_have(&mut self, name: &str, item: &str) -> bool {
        self.client.run(&format!("BF.EXISTS {name} {item}")).truth()
    }

    fn run_ok(&mut self, line: &str) {
        assert_eq!(self.client.run(line), ok(), "{line}");
    }

    fn waiting(&mut self) -> usize {
        let info = self.client.run("INFO bf").text();
        info.lines().find_map(|line| line.strip_prefix("bf_bloom_waiting:")).unwrap().parse().unwrap()
    }

    /// Waits until the server has as many waiting clients as the state's queues.
    fn wait_for_queues(&mut self, state: &State) {
        let expected: usize = state.server.keys.iter().map(|slot| slot.queue.len()).sum();
        eventually("the clients to wait", || (0..100).any(|_| self.waiting() == expected));
    }

    /// Checks a reply of BF.FETCH, and stores its token.
    fn expect(&mut self, reader: u8, key: u8, reply: &Reply, expected: Answer) {
        let value = |version| bulk(format!("v{version}"));
        let elements = reply.elements();
        let is_same = match expected {
            Answer::Absent => *reply == array([bulk("absent")]),
            Answer::Hit(version) => *reply == array([bulk("hit"), value(version)]),
            Answer::Stale(version) => elements.len() == 3 && word(reply) == "stale" && elements[1] == value(version),
            Answer::Load => elements.len() == 2 && word(reply) == "load",
            Answer::Wait => elements.len() == 2 && word(reply) == "wait",
        };
        assert!(is_same, "{reply:?} and not {expected:?}");
        if expected.grants() {
            let token = elements[elements.len() - 1].text();
            self.last_tokens.insert(key, token.clone());
            self.readers[usize::from(reader)].1 = token;
        }
        self.seen.insert(format!("{expected:?}").split('(').next().unwrap().to_owned());
    }

    /// Sends the commands of an action, and compares their replies.
    pub fn play(&mut self, world: &World, before: &State, action: Action, after: &State) {
        self.seen.insert(format!("{action:?}").split('(').next().unwrap().to_owned());
        match action {
            Action::Ask(reader, key, how) => self.ask(before, reader, key, how, after),
            Action::Fill(reader) | Action::FillAndKeep(reader) => {
                let Phase::Loaded(held, version) = before.readers[usize::from(reader)].phase else { panic!() };
                let has_row = before.row.has(version);
                self.fill(before, reader, held.key, if has_row { Fill::Value(version) } else { Fill::None });
            }
            Action::GiveUp(reader) | Action::BackOff(reader) => {
                let Phase::Token(held) = before.readers[usize::from(reader)].phase else { panic!() };
                let fill = if matches!(action, Action::BackOff(_)) { Fill::BackOff } else { Fill::GiveUp };
                self.fill(before, reader, held.key, fill);
            }
            Action::Announce => self.changed(before, Name::Rows, 0),
            Action::Beat | Action::ExpireBeat | Action::Tick => {
                for (key, slot) in (0..).zip(&before.server.keys) {
                    if action == Action::Tick && slot.is_no_longer_fresh(after.follower.period) {
                        self.expire_record(before, key);
                    }
                }
                let line = if after.server.heartbeat == Some(true) { "SET {f}:beat 1" } else { "DEL {f}:beat" };
                self.client.run(line);
            }
            Action::Vanish(reader) => {
                if matches!(before.readers[usize::from(reader)].phase, Phase::Waiting(_)) {
                    self.readers[usize::from(reader)].0 = self.server.connect();
                    self.wait_for_queues(after);
                }
            }
            Action::Serve => {
                for (reader, key, answer) in before.server.clone().serve() {
                    let reply = self.readers[usize::from(reader)].0.receive().unwrap();
                    self.expect(reader, key as u8, &reply, answer);
                }
            }
            Action::Write(number) => {
                let place = usize::from(before.writers[usize::from(number)].done);
                self.write(before, number, world.programs[usize::from(number)][place]);
            }
            Action::DelArrives => {
                let found = before.server.may_have(Name::Rows) == Some(true);
                assert_eq!(self.client.run(&format!("BF.DEL {FILTER} {}", self.item)).truth(), found);
            }
            Action::ExpireRecord(key) => self.expire_record(before, key),
            Action::ExpireValue(key) => {
                // If this time passes before the command ends, the server deletes the value, which counts as a change: with 1 ms, one run
                // in twenty failed while two others were running.
                assert!(self.client.run(&format!("PEXPIRE {} 50", cache_key(key))).truth());
                eventually("the value to expire", || !self.client.run(&format!("EXISTS {}", cache_key(key))).truth());
            }
            Action::Collide => {
                self.add_others(FILTER);
                let item = self.item.clone();
                assert!(self.may_have(FILTER, &item));
            }
            Action::Lose(is_new) => {
                let name = filter(if is_new { Name::Filling } else { Name::Rows });
                assert!(self.client.run(&format!("DEL {name}")).truth());
            }
            Action::Refill => self.refill(before, after),
            _ => {}
        }
        if !after.server.keys.iter().any(|slot| slot.is_due) {
            self.wait_for_queues(after);
        }
    }

    fn expire_record(&mut self, before: &State, key: u8) {
        match before.server.keys[usize::from(key)].record {
            Some(Record::Lease(..)) => {
                let (item, name, token) = (&self.item, cache_key(key), &self.last_tokens[&key]);
                self.client.run(&format!("BF.FILL {FILTER} {item} {name} {token} GIVEUP"));
            }
            _ => self.evict(),
        }
    }

    fn ask(&mut self, before: &State, reader: u8, key: u8, how: How, after: &State) {
        let words = match how {
            How::Plain => "",
            How::Wait => " WAIT 1000000",
            How::Stale => " STALE 2000000",
            How::Replace => " REPLACE WAIT 1000000",
            How::Peek => " PEEK",
            How::Fresh => " FRESH 3600000",
        };
        let words =
            if before.server.heartbeat.is_some() { format!("{words} WHILE {{f}}:beat") } else { words.to_owned() };
        let words = format!("LEASE 1000000 UNLESS {{f}}:open{words}");
        let pair = format!("{} {}", self.item, cache_key(key));
        // Every second lookup is a batch of one.
        self.asked += 1;
        let is_batch = !how.waits() && self.asked.is_multiple_of(2);
        let line = if is_batch {
            format!("BF.MFETCH {FILTER} {words} ITEMS {pair}")
        } else {
            format!("BF.FETCH {FILTER} {pair} {words}")
        };
        let connection = &mut self.readers[usize::from(reader)].0;
        connection.send(&line.split(' ').collect::<Vec<_>>()).unwrap();
        match before.server.clone().fetch(reader, key.into(), how) {
            Some(answer) => {
                let reply = connection.receive().unwrap();
                let reply = if is_batch { reply.elements()[0].clone() } else { reply };
                self.expect(reader, key, &reply, answer);
            }
            None => {
                let is_held = before.server.keys[usize::from(key)].is_open;
                self.seen.insert(if is_held { "Held" } else { "Blocked" }.to_owned());
                self.wait_for_queues(after);
            }
        }
    }

    fn fill(&mut self, before: &State, reader: u8, key: u8, fill: Fill) {
        let words = match fill {
            Fill::Value(version) => format!("VALUE v{version} PX 1000000"),
            Fill::None => "NONE PX 1000000".to_owned(),
            Fill::GiveUp => "GIVEUP".to_owned(),
            Fill::BackOff => "GIVEUP BACKOFF 1000000".to_owned(),
        };
        let token = &self.readers[usize::from(reader)].1;
        let reply = self.client.run(&format!("BF.FILL {FILTER} {} {} {token} {words}", self.item, cache_key(key)));
        let is_taken = before.server.clone().fill(reader, key.into(), fill);
        assert_eq!(reply, if is_taken { ok() } else { nil(2) });
        self.seen.insert(if is_taken { "Accepted" } else { "Refused" }.to_owned());
    }

    fn write(&mut self, before: &State, number: u8, step: Step) {
        match step {
            Step::Changed(name, key) => self.changed(before, name, key),
            Step::ChangedValue(key) => _ = self.client.run(&format!("BF.CHANGED {FILTER} another {}", cache_key(key))),
            Step::Set(key) => {
                let version = before.writers[usize::from(number)].version;
                self.run_ok(&format!("SET {} v{version} PX 1000000", cache_key(key)));
            }
            Step::Open(is_announced) => {
                self.client.run("MULTI");
                self.client.run(&format!("HSET {{f}}:open {} 1", cache_key(0)));
                if is_announced {
                    self.client.run(&format!("BF.CHANGED {FILTER} {} {}", self.item, cache_key(0)));
                }
                assert!(!self.client.run("EXEC").elements().iter().any(Reply::is_error));
            }
            Step::Release(is_announced, deletes) => {
                self.client.run("MULTI");
                self.client.run(&format!("HDEL {{f}}:open {}", cache_key(0)));
                if is_announced {
                    self.client.run(&format!("BF.CHANGED {FILTER} {} {}", self.item, cache_key(0)));
                }
                if deletes {
                    self.client.run(&format!("BF.DEL {FILTER} {}", self.item));
                }
                assert!(!self.client.run("EXEC").elements().iter().any(Reply::is_error));
            }
            Step::Add if before.server.exists(Name::Rows) => {
                let has = before.server.may_have(Name::Rows) == Some(true);
                assert_eq!(self.client.run(&format!("BF.ADD {FILTER} {}", self.item)).truth(), !has);
            }
            _ => {}
        }
    }

    fn changed(&mut self, before: &State, name: Name, key: u8) {
        let expected = before.server.may_have(name).map_or(nil(2), |has| self.client.answer(!has));
        let pair = format!("{} {}", self.item, cache_key(key));
        self.asked += 1;
        if self.asked.is_multiple_of(2) {
            assert_eq!(self.client.run(&format!("BF.MCHANGED {} ITEMS {pair}", filter(name))), array([expected]));
        } else {
            assert_eq!(self.client.run(&format!("BF.CHANGED {} {pair}", filter(name))), expected);
        }
    }

    fn refill(&mut self, before: &State, after: &State) {
        let name = filter(Name::Filling);
        let is_there = before.server.exists(Name::Filling);
        match (before.refill, after.refill) {
            (Refill::Off, Refill::Created) => self.copy(name),
            (Refill::Scanned(has_row), _) => {
                let item = if has_row { self.item.as_str() } else { "another" };
                let reply = self.client.run(&format!("BF.INSERT {name} NOCREATE ITEMS {item}"));
                assert_eq!(reply.is_error(), !is_there);
            }
            (Refill::Complete, Refill::Renamed) => self.run_ok(&format!("RENAME {name} {FILTER}")),
            (Refill::Complete, _) => assert!(self.client.run(&format!("RENAME {name} {FILTER}")).is_error()),
            _ => {}
        }
    }

    /// Evicts the record of a cache key, the only one, by one of another cache key.
    fn evict(&mut self) {
        self.run_ok("CONFIG SET bf.max-leases 1");
        let token = self.client.run("BF.FETCH {g} 1 {g}:1").elements()[1].text();
        // The lease of a served waiter has evicted this lease in turn.
        self.client.run(&format!("BF.FILL {{g}} 1 {{g}}:1 {token} GIVEUP"));
        self.run_ok("CONFIG SET bf.max-leases 8");
    }
}
