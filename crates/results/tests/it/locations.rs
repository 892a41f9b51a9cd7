//! SQLite and PostgreSQL behave the same; upgrades and downgrades of the tables.

use crate::samples;
use crate::server;

use report::Result;
use results::{Added, Copied, Entry, Error, Filter, Location, Store};
use server::Server;

/// Distinct results, the last with special characters in its names.
fn four_results() -> Vec<Result> {
    let mut out = vec![];
    for (n, (kind, isolation)) in
        [("bondstone", "inproc"), ("bondstone", "vm"), ("native", "inproc"), ("odd\u{0}'\"\\ ☃", "in\u{0}proc")]
            .into_iter()
            .enumerate()
    {
        let mut r = samples::result(kind, samples::sizes().swap_remove(n), 200.0);
        r.latency.truncate(1);
        r.cell.insert("isolation".to_owned(), isolation.to_owned());
        r.environment.date = format!("2026-03-0{}T12:00:00Z", n + 1);
        r.dut.version = (n != 2).then(|| format!("0.{n}"));
        r.method.name = if n == 1 { "soak" } else { "throughput" }.to_owned();
        r.assign_id().unwrap();
        out.push(r);
    }
    out
}

/// Checks the operations of a database.
fn check_operations(location: &Location) -> Vec<Entry> {
    let mut store = Store::open(location.clone()).unwrap();
    let all = four_results();
    for r in &all {
        assert_eq!(store.add(r).unwrap(), Added::New);
        assert_eq!(store.add(r).unwrap(), Added::Existing);
    }
    for r in &all {
        assert_eq!(store.document(&r.id).unwrap(), Some(r.verify().unwrap()));
    }
    assert!(store.tag(&all[0].id, "nightly").unwrap());
    assert!(!store.tag(&all[0].id, "nightly").unwrap());
    assert!(store.tag(&all[0].id, "a/first").unwrap());
    assert!(store.tag(&all[1].id, "nightly").unwrap());
    assert!(store.tag(&all[2].id, "gone").unwrap());
    assert!(store.untag(&all[2].id, "gone").unwrap());
    assert!(!store.untag(&all[2].id, "gone").unwrap());
    assert_eq!(store.tags(&all[0].id).unwrap(), ["a/first", "nightly"]);
    assert!(matches!(store.tag("no such id", "x"), Err(Error::NoResult { .. })));
    assert!(matches!(store.tag(&all[0].id, "a b"), Err(Error::Tag { .. })));
    for n in 0..62 {
        store.tag(&all[2].id, &format!("t{n}")).unwrap();
    }
    assert!(store.tag(&all[2].id, "t62").is_ok() && store.tag(&all[2].id, "t63").is_ok());
    assert!(matches!(store.tag(&all[2].id, "t64"), Err(Error::Tag { .. })));
    assert_eq!(store.tags(&all[2].id).unwrap().len(), 64);

    let find = |text: &str| {
        let found = store.list(&text.parse().unwrap()).unwrap();
        found.iter().map(|e| all.iter().position(|r| r.id == e.id).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(find("dut=bondstone"), [1, 0]);
    assert_eq!(find("dut=bondstone ttl+lpm,frame=64"), [0]);
    assert_eq!(find("cell.isolation=inproc"), [2, 0]);
    assert_eq!(find("cell.isolation=inproc,dut=native"), [2]);
    assert_eq!(find("cell.colour=red"), [0usize; 0]);
    assert_eq!(find("tag=nightly"), [1, 0]);
    assert_eq!(find("method=soak"), [1]);
    assert_eq!(find("version=0.3"), [3]);
    assert_eq!(find("tool=bondstone"), [3, 2, 1, 0]);
    assert_eq!(find("tool=bondstone 0.1.0"), [3, 2, 1, 0]);
    assert_eq!(find("tool=bond"), [0usize; 0]);
    assert_eq!(find("since=2026-03-02,until=2026-03-03"), [2, 1]);
    assert_eq!(find("until=2026-03-02T12:00:00Z"), [1, 0]);
    assert_eq!(find(&format!("id={}", &all[3].id[..9])), [3]);
    assert_eq!(find("study=' OR 1=1 --"), [0usize; 0]);
    let limited = Filter { limit: Some(1), ..Filter::default() };
    assert_eq!(store.list(&limited).unwrap()[0].id, all[3].id);
    assert_eq!(store.select(&Filter::default()).unwrap(), all);

    assert!(store.delete(&all[1].id).unwrap());
    assert!(!store.delete(&all[1].id).unwrap());
    let left = store.list(&"tag=nightly".parse().unwrap()).unwrap();
    assert_eq!(left.iter().map(|e| &e.id).collect::<Vec<_>>(), [&all[0].id]);
    store.list(&Filter::default()).unwrap()
}

#[test]
fn connections_are_encrypted_and_certificates_verified_on_request() {
    let Some(server) = Server::start_with_tls() else { return };
    server.database("tls");
    let open = |host: &str, query: &str| Store::open(server.tls_url(host, "tls", query).as_str());
    let authority = server.certificate_authority().display().to_string().replace('/', "%2F");
    let verified = format!("sslmode=verify-full&sslrootcert={authority}");
    for query in ["", "sslmode=prefer", "sslmode=require", &verified] {
        assert!(open("localhost", query).is_ok(), "{query}: {:?}", open("localhost", query).err());
    }
    // the certificate is for localhost, and of an authority that the system does not know
    let rejected = [
        ("localhost", "sslmode=disable", "pg_hba.conf rejects"),
        ("localhost", "sslmode=verify-full", "certificate"),
        ("127.0.0.1", &verified, "certificate"),
    ];
    for (host, query, reason) in rejected {
        let error = open(host, query).unwrap_err().to_string();
        assert!(error.contains(reason), "{host} {query}: {error}");
    }
    assert!(open("127.0.0.1", "sslmode=require").is_ok());
}

#[test]
fn sqlite_and_postgres_behave_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = Location::parse(folder.path().join("a.sqlite"));
    let mut in_file = check_operations(&file);
    let Some(server) = Server::start() else { return };
    let location = Location::parse(server.database("a"));
    let on_server = check_operations(&location);
    // PostgreSQL has no NUL in text columns; the document has
    in_file.iter_mut().for_each(|e| e.dut = e.dut.replace('\0', "\u{fffd}"));
    assert_eq!(in_file, on_server);

    // copy in both directions
    let (a, b) = (Store::open(file).unwrap(), Store::open(location).unwrap());
    let mut c = Store::open(&server.database("c")).unwrap();
    let mut d = Store::open(&folder.path().join("d.sqlite")).unwrap();
    assert_eq!(a.copy_to(&mut c).unwrap(), Copied { new: 3, existing: 0 });
    assert_eq!(a.copy_to(&mut c).unwrap(), Copied { new: 0, existing: 3 });
    assert_eq!(b.copy_to(&mut d).unwrap(), Copied { new: 3, existing: 0 });
    for e in &on_server {
        let document = a.document(&e.id).unwrap().unwrap();
        for other in [&b, &c, &d] {
            assert_eq!(other.document(&e.id).unwrap().unwrap().text(), document.text());
            assert_eq!(other.tags(&e.id).unwrap(), a.tags(&e.id).unwrap());
        }
    }
}

/// Downgrades and upgrades through all versions: documents do not change, and columns match them.
fn check_migrations(location: &Location, query: impl Fn(&str) -> String) {
    let all = four_results();
    let read_all = |store: &Store| {
        let read: Vec<Result> = all.iter().map(|r| store.get(&r.id).unwrap().unwrap()).collect();
        assert_eq!(read, all);
        store.list(&Filter::default()).unwrap()
    };
    let mut store = Store::open(location.clone()).unwrap();
    all.iter().for_each(|r| assert_eq!(store.add(r).unwrap(), Added::New));
    let before = read_all(&store);
    let quantities = query("SELECT count(*) FROM quantity WHERE n = 3");
    drop(store);
    for version in (1..Store::VERSION).rev() {
        Store::downgrade(location.clone(), version).unwrap();
        assert_eq!(query("SELECT count(*) FROM result"), all.len().to_string());
        assert_eq!(
            query("SELECT count(*) FROM result_trial"),
            all.iter().map(|r| r.trials.len()).sum::<usize>().to_string()
        );
        let up = Store::open(location.clone()).unwrap();
        assert_eq!(read_all(&up), before);
        assert_eq!(query("SELECT count(*) FROM quantity WHERE n = 3"), quantities);
        assert_eq!(up.list(&"cell.isolation=vm,method=soak".parse().unwrap()).unwrap().len(), 1);
    }
    assert_eq!(quantities, all.len().to_string());
    // remove the tables and create them again
    Store::downgrade(location.clone(), 0).unwrap();
    let mut store = Store::open(location.clone()).unwrap();
    assert_eq!(store.list(&Filter::default()).unwrap(), []);
    store.add(&all[0]).unwrap();
    let newer = Store::downgrade(location.clone(), Store::VERSION + 1);
    assert!(matches!(newer, Err(Error::Newer { .. })), "{newer:?}");
}

#[test]
fn files_migrate_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.sqlite");
    check_migrations(&Location::parse(&file), |sql| {
        let c = rusqlite::Connection::open(&file).unwrap();
        c.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().to_string()
    });
}

#[test]
fn servers_migrate_both_ways() {
    let Some(server) = Server::start() else { return };
    let location = Location::parse(server.database("m"));
    check_migrations(&location, |sql| server.sql("m", sql).unwrap());

    // a newer version, another program, a missing database
    server.sql("m", "UPDATE bondstone_version SET version = 9").unwrap();
    assert!(matches!(Store::open(location), Err(Error::Newer { found: 9, .. })));
    let foreign = server.database("f");
    server.sql("f", "CREATE TABLE result (x int)").unwrap();
    let e = Store::open(&foreign).unwrap_err();
    assert!(matches!(e, Error::Foreign { .. }), "{e}");
    let e = Store::open(&server.url("nowhere")).unwrap_err();
    assert!(matches!(&e, Error::Unreachable { .. }) && e.to_string().contains("\"nowhere\" does not exist"), "{e}");
    let e = Store::open("postgres://u:secret@/d?port=x").unwrap_err();
    assert!(matches!(&e, Error::Url { .. }) && !e.to_string().contains("secret"), "{e}");
    let url = server.database("w");
    drop(Store::open(&url).unwrap());
    server.sql("w", "CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader").unwrap();
    let mut reader = Store::open(&url.replace("bondstone@", "reader@")).unwrap();
    assert_eq!(reader.list(&Filter::default()).unwrap(), []);
    let e = reader.add(&four_results()[0]).unwrap_err();
    assert!(matches!(e, Error::Forbidden { .. }), "{e}");

    // several programs open an empty database at the same time and add equal results
    let url = server.database("at_once");
    let added: usize = std::thread::scope(|scope| {
        let write = || {
            let mut store = Store::open(&url).unwrap();
            four_results().iter().filter(|r| store.add(r).unwrap() == Added::New).count()
        };
        let writers: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
        writers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert_eq!(added, four_results().len());
}

/// The tables of version 1, with an invalid document.
#[test]
fn opens_a_file_of_version_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.sqlite");
    let mut store = Store::open(&file).unwrap();
    four_results().iter().for_each(|r| assert_eq!(store.add(r).unwrap(), Added::New));
    drop(store);
    Store::downgrade(&file, 1).unwrap();
    let c = rusqlite::Connection::open(&file).unwrap();
    assert_eq!(c.query_row("PRAGMA user_version", [], |r| r.get::<_, i64>(0)).unwrap(), 1);
    // an invalid document must not prevent opening
    let invalidate = "UPDATE result SET document = '{}' WHERE dut_kind = 'native'";
    assert_eq!(c.execute(invalidate, []).unwrap(), 1);
    drop(c);
    let store = Store::open(&file).unwrap();
    assert_eq!(store.list(&Filter::default()).unwrap().len(), 4);
    assert_eq!(store.list(&"cell.isolation=inproc".parse().unwrap()).unwrap().len(), 1);
}
