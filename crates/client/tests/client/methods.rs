//! Methods that the cases do not cover, on a real server. Both halves include this file as a module.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bloomgate_client::{BoxError, Codec, Durability, Error, GuardOptions, Insert, Options};

use super::{Client, Filter, Guard, ShardedFilter, fill_filter};

/// Calls all of them.
pub async fn all(client: &Client) -> Result<(), Error> {
    filters(client).await?;
    sharded(client).await?;
    counts(client).await?;
    loaders(client).await?;
    sources_that_fail(client).await?;
    decoded_rows(client).await
}

/// The methods of filters.
async fn filters(client: &Client) -> Result<(), Error> {
    let (seen, other) = (Filter::new(client, "seen"), Filter::new(client, "other"));
    let options = Options { seed: Some("7".to_owned()), ex: Some(1000), ..Options::default() };
    let insert = Insert { rate: Some(0.001), capacity: Some(500), options, ..Insert::default() };
    assert_eq!(wait!(seen.insert(["a", "b", "a"], &insert))?, [true, true, false]);
    assert_eq!(wait!(seen.info())?.capacity, 500);
    assert!(wait!(seen.insert([""; 0], &insert))?.is_empty());
    let nocreate = Insert { nocreate: true, ..Insert::default() };
    let missing = wait!(other.insert(["a"], &nocreate));
    assert!(matches!(missing, Err(Error::FilterMissing { .. })), "{missing:?}");

    let none = wait!(other.merge([""; 0]));
    assert!(matches!(none, Err(Error::Refused(_))), "{none:?}");
    wait!(other.merge(["seen"]))?;
    assert_eq!(wait!(other.exists_many(["a", "b", "c"]))?, [true, true, false]);
    assert!(!wait!(other.debug())?.is_empty());

    let recent = Filter::new(client, "recent");
    let window = Options { window: Some(60), buckets: Some(3), ..Options::default() };
    wait!(recent.reserve(0.01, 100, &window))?;
    wait!(recent.add("a"))?;
    let mut dropped = Vec::new();
    for _ in 0..3 {
        dropped.push(wait!(recent.rotate())?);
    }
    assert_eq!((dropped.iter().sum::<u64>(), wait!(recent.exists("a"))?), (1, false));
    Ok(())
}

/// A failing source ends a batch, and a filter with a part of the ids is not renamed.
async fn sources_that_fail(client: &Client) -> Result<(), Error> {
    let cursor = |last| (0..1000_u64).map(Ok).chain([last]);
    let (plain, none) = (Options::default(), Durability::default());
    let failed = wait!(fill_filter(client, "{ids}", cursor(Err("the cursor is lost")), 0.01, 5000, &plain, &none));
    assert!(matches!(&failed, Err(Error::Caller(error)) if error.to_string() == "the cursor is lost"), "{failed:?}");
    let ids = Filter::new(client, "{ids}");
    assert!(matches!(wait!(ids.info()), Err(Error::FilterMissing { .. })));
    assert!(wait!(Filter::new(client, "{ids}~filling").drop())?);
    let added = wait!(fill_filter(client, "{ids}", cursor(Ok::<_, &str>(1000)), 0.01, 5000, &plain, &none))?;
    assert!(added > 900, "{added}");

    let failed = wait!(ids.add_many(cursor(Err("the cursor is lost"))));
    assert!(matches!(failed, Err(Error::Caller(_))), "{failed:?}");
    assert_eq!(wait!(ids.exists_many([Ok(7), Ok::<_, &str>(1000)]))?, [true, true]);
    Ok(())
}

/// The methods of sharded filters.
async fn sharded(client: &Client) -> Result<(), Error> {
    let seeded = Options { seed: Some("7".to_owned()), ..Options::default() };
    let mut links = wait!(ShardedFilter::create(client, "links", 0.01, 1000, 4, &seeded))?;
    wait!(links.add_many(0..100))?;
    let (infos, info) = (wait!(links.infos())?, wait!(links.info())?);
    assert_eq!((infos.len(), info.items, info.layers), (4, wait!(links.card())?, 1));
    assert_eq!(info.capacity, infos.iter().map(|info| info.capacity).sum::<u64>());

    wait!(links.merge_into("all"))?;
    let all = wait!(ShardedFilter::open(client, "all"))?;
    assert_eq!(wait!(all.exists_many(0..100))?, vec![true; 100]);
    wait!(ShardedFilter::create(client, "two", 0.01, 1000, 2, &seeded))?;
    let refused = wait!(links.merge_into("two"));
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");

    let mut again = wait!(ShardedFilter::open(client, "links"))?;
    wait!(again.double())?;
    let changed = wait!(links.exists("a"));
    assert!(matches!(changed, Err(Error::ShardsChanged { .. })), "{changed:?}");
    wait!(links.reopen())?;
    assert_eq!((links.shards(), wait!(links.exists(99))?), (8, true));

    wait!(links.clear())?;
    assert_eq!(wait!(links.card())?, 0);
    wait!(Filter::new(client, &links.keys()[3]).drop())?;
    let missing = wait!(links.verify());
    assert!(matches!(missing, Err(Error::ShardMissing { .. })), "{missing:?}");
    let exists = wait!(ShardedFilter::create(client, "links", 0.01, 1000, 8, &seeded));
    assert!(matches!(exists, Err(Error::FilterExists { .. })), "{exists:?}");
    let exists = wait!(ShardedFilter::resume(client, "links", 0.01, 1000, 4, &seeded));
    assert!(matches!(exists, Err(Error::FilterExists { .. })), "{exists:?}");
    wait!(wait!(ShardedFilter::resume(client, "links", 0.01, 1000, 8, &seeded))?.verify())
}

/// The events that a guard counts.
async fn counts(client: &Client) -> Result<(), Error> {
    let options = Options { seed: Some("7".to_owned()), ..Options::default() };
    wait!(Filter::new(client, "users").reserve(0.0001, 1000, &options))?;
    wait!(Filter::new(client, "users").add(17))?;
    let guard = Guard::new(client, "users", GuardOptions { beta: 0.0, ..GuardOptions::default() })?;
    // `?` converts a boxed error and the guard's error to the same type.
    let failed = async {
        wait!(guard.get(17, |_| work!(Err::<_, BoxError>(Box::new(io::Error::other("down"))))))?;
        Ok::<_, BoxError>(())
    };
    let failed = failed.await.unwrap_err();
    let Some(Error::Caller(cause)) = failed.downcast_ref() else { panic!("{failed:?}") };
    assert!(cause.is::<io::Error>(), "{cause:?}");
    for _ in 0..2 {
        let row = wait!(guard.get(17, |_| work!(Ok::<_, Error>(Some(b"Ann".to_vec())))));
        assert_eq!(row.unwrap().as_deref(), Some(b"Ann".as_slice()));
    }
    assert_eq!(wait!(guard.get(18, |_| work!(Ok::<_, Error>(None)))).unwrap(), None);
    let counts: Vec<_> = guard.counts().into_iter().collect();
    assert_eq!(counts, [("absent", 1), ("filled", 1), ("hit", 1), ("load", 2), ("load_failed", 1)]);
    Ok(())
}

/// The loader of the guard, and the loader of a call.
async fn loaders(client: &Client) -> Result<(), Error> {
    wait!(Filter::new(client, "rows").add_many(0..10))?;
    let row = |row: String| Ok::<_, Error>(Some(row.into_bytes()));
    let rows = Guard::new(client, "rows", GuardOptions::default())?;
    let rows = rows.with_loader(|id: i64| work!(row(format!("row {id}")))).clone();
    assert_eq!(wait!(rows.get(1))?.unwrap(), b"row 1");
    assert_eq!(wait!((*rows).get("2", |id| work!(row(format!("text {id}")))))?.unwrap(), b"text 2");
    assert_eq!(wait!(rows.get(2))?.unwrap(), b"text 2");
    assert_eq!(wait!(rows.get(10))?, None);
    wait!(rows.changed([1], || work!(Ok::<_, Error>(()))))?;
    Ok(())
}

/// Caches texts in lower case.
struct Lower;

impl Codec for Lower {
    type Row = String;

    fn encode(&self, row: &String) -> Result<Vec<u8>, String> {
        Ok(row.to_lowercase().into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<String, String> {
        String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string())
    }
}

/// Every caller gets the decoded form of a row, including the caller that loads it and callers without a server.
async fn decoded_rows(client: &Client) -> Result<(), Error> {
    wait!(Filter::new(client, "decoded").add_many(0..10))?;
    for client in [client.clone(), Client::open("redis://127.0.0.1:1")?] {
        let guard = Guard::with_codec(&client, "decoded", Lower, GuardOptions::default())?;
        let row = || Ok::<_, Error>(Some("ANN".to_owned()));
        let soft_timeout = Duration::from_secs(60);
        let rows = [
            wait!(guard.get(1, |_| work!(row())))?,
            wait!(guard.get_with_soft_timeout(2, soft_timeout, move |_| work!(row())))?,
            wait!(guard.get_many(&[3], |_| work!(Ok::<_, Error>(HashMap::from([(3, "ANN".to_owned())])))))?.remove(0),
        ];
        assert_eq!(rows, ["ann"; 3].map(|row| Some(row.to_owned())));
    }
    Ok(())
}
