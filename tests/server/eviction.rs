//! The room for a filter on servers that evict keys, and on servers without a limit: exactly the available memory.

use std::fs;

use crate::reserve::sizes_of_a_refusal;
use testing::{Connection, Reply, Server, integer, ok, on_every_server, with_client};

/// Returns the available memory, from the error for a filter that is far too large.
fn available(client: &mut Connection) -> i64 {
    let refusal = client.run("BF.RESERVE too-large 0.01 35184372088832 NONSCALING");
    sizes_of_a_refusal(&refusal).1 as i64
}

/// Creates `count` keys of this size in bytes, with or without a time to live.
fn populate(client: &mut Connection, name: &str, count: usize, bytes: usize, expires: bool) {
    let ending = if expires { ", 'EX', 100000" } else { "" };
    let script = format!(
        "for i = 1, {count} do redis.call('SET', '{name}:' .. i, string.rep('x', {bytes}){ending}) end return 1"
    );
    assert_eq!(client.call(&["EVAL", &script, "0"]), integer(1));
}

#[test]
fn keys_without_a_time_to_live_are_not_counted_as_free() {
    with_client(|_, client| {
        client.run("CONFIG SET maxmemory 100mb");
        populate(client, "kept", 70, 1_000_000, false);
        let without = available(client);
        assert!((20 << 20..40 << 20).contains(&without), "{without} bytes available");
        for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "volatile-lrm"] {
            if client.run(&format!("CONFIG SET maxmemory-policy {policy}")) != ok() {
                assert_eq!(policy, "volatile-lrm", "which older servers do not have");
                continue;
            }
            assert!((available(client) - without).abs() < 2 << 20, "{policy}");
            // 80 MiB.
            sizes_of_a_refusal(&client.run("BF.RESERVE large 0.01 70000000"));
            assert_eq!(client.run("BF.RESERVE fits 0.01 10000000"), ok());
            assert!(client.info_number("used_memory") < 100 << 20);
            assert_eq!(client.run("SET a write"), ok());
            // A filter with a time to live makes no difference: it is not counted among the expiring keys.
            client.run("EXPIRE fits 100000");
            sizes_of_a_refusal(&client.run("BF.RESERVE large 0.01 70000000"));
            client.run("DEL fits");
            client.wait_for_frees();
        }
        // With any policy that may evict every key, all memory is available except the server's own.
        client.run("CONFIG SET maxmemory-policy allkeys-lru");
        assert!((90 << 20..100 << 20).contains(&available(client)));
    });
}

/// The server's own memory cannot be evicted. A filter that just fits is not evicted, even if every other key is.
#[test]
fn a_filter_that_fits_is_not_evicted_at_once() {
    on_every_server(|program| {
        for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru"] {
            let server = Server::start(program);
            let mut client = server.connect();
            client.run("CONFIG SET maxmemory 70mb");
            assert_eq!(client.run(&format!("CONFIG SET maxmemory-policy {policy}")), ok());
            populate(&mut client, "cached", 100, 100_000, true);
            // Slightly more than the size to which the allocator rounds the filter up.
            let less = available(&mut client) - ((64 << 20) + (256 << 10));
            client.run(&format!("CONFIG SET maxmemory {}", (70 << 20) - less));
            let room = available(&mut client);
            assert!((64 << 20..65 << 20).contains(&room), "{policy}: {room} bytes available");
            assert_eq!(client.run("FLUSHALL SYNC"), ok());
            // A fixed filter at 1% has 9.68 bits for each item. INFO counts a little differently when there are no keys.
            let capacity = f64::from(64 << 20) * 8.0 / 9.73;
            assert_eq!(client.run(&format!("BF.RESERVE k 0.01 {capacity:.0} NONSCALING EX 100000")), ok());
            let size = client.run("BF.INFO k").field("Size").number();
            assert!(size > room / 100 * 98 && size <= room, "{policy}: {size} of {room} bytes");
            for number in 0..100 {
                assert_eq!(client.run(&format!("BF.ADD k {number}")), integer(1), "{policy}, {number}");
            }
            assert_eq!(client.run("BF.INFO k").field("Size").number(), size, "{policy}: it is the same filter");
        }
    });
}

/// The allocator rounds up, by a fifth here. The bytes that it adds to filters do not count as room.
#[test]
fn allocator_overhead_is_not_counted_as_free() {
    with_client(|_, client| {
        client.run("CONFIG SET maxmemory 100mb");
        client.run("CONFIG SET maxmemory-policy allkeys-lru");
        let all = available(client);
        // 17 MiB of cells, which jemalloc rounds up to 20: one filter is created with them, another grows from 1000 items.
        assert_eq!(client.run("BF.RESERVE created 0.01 14700000 NONSCALING"), ok());
        assert_eq!(client.run("BF.RESERVE grown 0.01 1000 EXPANSION 10000"), ok());
        client.batched(&[b"BF.MADD", b"grown"], &(0..1100).map(|number| number.to_string()).collect::<Vec<_>>());
        assert_eq!(client.run("BF.INFO grown").field("Number of filters"), &integer(2));
        let taken: i64 =
            ["created", "grown"].map(|key| client.run(&format!("MEMORY USAGE {key}")).number()).iter().sum();
        let room = available(client);
        assert!(
            (taken - (2 << 20)..taken + (2 << 20)).contains(&(all - room)),
            "{room} of {all}, filters take {taken}"
        );
        client.run("DEL created grown");
        client.wait_for_frees();
        assert!((available(client) - all).abs() < 2 << 20, "what is freed is room again");
    });
}

#[test]
fn keys_with_a_time_to_live_are_counted_as_free() {
    with_client(|_, client| {
        client.run("CONFIG SET maxmemory 40mb");
        client.run("CONFIG SET maxmemory-policy volatile-lru");
        assert_eq!(client.run("BF.RESERVE first 0.01 100000"), ok());
        // In two databases; the second has more keys.
        populate(client, "cached", 2000, 2000, true);
        client.run("SELECT 15");
        populate(client, "cached", 30_000, 2000, true);
        client.run("SELECT 0");
        assert!(client.info_number("evicted_keys") > 0, "the cache is full");
        let room = available(client);
        assert!((20 << 20..40 << 20).contains(&room), "{room} bytes available");
        // Filters without a time to live can be created and can grow, and are not evicted.
        assert_eq!(client.run("BF.RESERVE seen 0.01 300000"), ok());
        let items: Vec<String> = (0..400_000).map(|number| number.to_string()).collect();
        client.batched(&[b"BF.MADD", b"seen"], &items);
        assert_eq!(client.run("BF.INFO seen").field("Number of filters"), &integer(2));
        assert_eq!(client.run("EXISTS first seen"), integer(2));
        // A filter that does not fit beside them is refused, and almost no key is evicted for it: a full cache may lose a key with any
        // command.
        let evicted = client.info_number("evicted_keys");
        sizes_of_a_refusal(&client.run("BF.RESERVE large 0.01 40000000"));
        assert!(client.info_number("evicted_keys") <= evicted + 5);
        // The room never exceeds the room with a policy that may evict any key, except for memory that the server uses meanwhile.
        let room = available(client);
        client.run("CONFIG SET maxmemory-policy allkeys-lru");
        let most = available(client) + (1 << 20);
        assert!(room <= most, "{room} of {most}");
    });
}

#[test]
fn keys_with_a_time_to_live_are_counted_as_free_by_their_share() {
    with_client(|_, client| {
        client.run("CONFIG SET maxmemory 100mb");
        client.run("CONFIG SET maxmemory-policy volatile-ttl");
        populate(client, "kept", 20_000, 2000, false);
        populate(client, "cached", 20_000, 2000, true);
        let free = (100 << 20) - client.info_number("used_memory");
        let evictable = available(client) - free;
        assert!((35 << 20..46 << 20).contains(&evictable), "of some 80 MiB half can go: {evictable}");
    });
}

/// MemTotal and MemAvailable, in bytes.
fn machine() -> (i64, i64) {
    let text = fs::read_to_string("/proc/meminfo").expect("/proc/meminfo");
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of /proc/meminfo");
        line.trim().trim_end_matches(" kB").parse::<i64>().expect("kibibytes") << 10
    };
    (bytes("MemTotal:"), bytes("MemAvailable:"))
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc/meminfo")]
fn without_a_limit_it_is_what_the_machine_has_left() {
    with_client(|_, client| {
        let ((total, before), reported, (_, after)) = (machine(), available(client), machine());
        // Other processes change it meanwhile. A control group may leave less.
        let left = before.max(after);
        assert!(reported < left + (total - left) / 2, "{reported} available, {left} of {total} left");
        if let Reply::Error(text) = client.run("BF.RESERVE k 0.01 100000000") {
            panic!("with {reported} bytes left: {text}");
        }
    });
}
