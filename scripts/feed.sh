# shellcheck shell=bash
# The demonstration of scripts/run --feed, which sources this file: a table with writers that do not know the guard, the
# follower, and a reader.
# shellcheck disable=SC2154  # scripts/run sets these variables

postgres=$(postgres_folder) || fail "PostgreSQL is missing"
socket=$folder/postgres

# PostgreSQL refuses to run as root. Debian's package makes the user postgres.
as_postgres=(${with_parent[@]+"${with_parent[@]}"})
[ "$(id -u)" -ne 0 ] || as_postgres+=(--reuid postgres --regid postgres --clear-groups)

sql() {
  "$postgres/psql" --host "$socket" --username shop --dbname shop --no-psqlrc --quiet --tuples-only --no-align "$@"
}

# within_a_minute WHAT LOG COMMAND...: waits until the command succeeds.
within_a_minute() {
  local what=$1 log=$2 waited=0
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$waited" -lt 600 ] || fail "$what within a minute; the end of its log:" "$(tail -n 8 "$log")"
    sleep 0.1
    waited=$((waited + 1))
  done
}

start_postgres() {
  mkdir "$socket"
  chmod 711 "$folder"
  [ "$(id -u)" -ne 0 ] || chown postgres "$socket"
  (cd "$socket" && "${as_postgres[@]}" "$postgres/initdb" -D data -U shop -A trust -E UTF8 --no-locale --no-sync) >"$folder/initdb.log" 2>&1 ||
    fail "initdb failed; the end of its log:" "$(tail -n 8 "$folder/initdb.log")"
  (cd "$socket" && exec "${as_postgres[@]}" "$postgres/postgres" -D data -h '' -k "$socket" -c wal_level=logical) \
    >"$folder/postgres.log" 2>&1 &
  # shellcheck disable=SC2034  # scripts/run stops it
  database=$!
  within_a_minute "PostgreSQL did not answer" "$folder/postgres.log" \
    "$postgres/psql" --host "$socket" --username shop --dbname postgres -c 'CREATE DATABASE shop'
}

# reader ID: asks for a row. Sets `token` to the second line of the reply.
reader() {
  local reply
  say "\$ redis-cli BF.FETCH {users} $1 {users}:$1 WHILE {users}:feed"
  reply=$(ask BF.FETCH '{users}' "$1" "{users}:$1" WHILE '{users}:feed')
  say "$reply"
  token=$(sed -n 2p <<<"$reply")
}

# writer STATEMENT: a program that knows nothing of the guard. Returns when the follower has applied the change.
writer() {
  say "\$ psql shop -c \"$1\""
  "$postgres/psql" --host "$socket" --username shop --dbname shop --no-psqlrc -c "$1"
  written=$(sql -c 'SELECT pg_current_wal_insert_lsn()')
  within_a_minute "the follower did not apply the change" "$folder/follow.log" applied
}

# Whether the heartbeat was sent after the last write. Its value is a position in the log.
applied() {
  [ "$(sql -c "SELECT '$(ask GET '{users}:feed')'::pg_lsn >= '$written'")" = t ]
}

headline "A database: 100,000 users in PostgreSQL"
start_postgres
sql <<'END'
CREATE TABLE users (id bigint PRIMARY KEY, name text);
INSERT INTO users SELECT id, 'user ' || id FROM generate_series(1, 100000) id;
CREATE PUBLICATION bloomgate FOR TABLE users;
CREATE ROLE gate LOGIN REPLICATION;
GRANT SELECT ON users TO gate;
END
say "PostgreSQL $(sql -c 'SHOW server_version'), wal_level logical, socket in $socket"

headline "The follower: bloomgate follow users.toml"
say "It fills the filter from the table, then reads PostgreSQL's log and calls BF.CHANGED on behalf of all writers."
cat >"$folder/users.toml" <<END
database = "postgres://gate@${socket//\//%2F}/shop"
server   = "$url"
slot     = "bloomgate"
mode     = "eventual"

[[table]]
name      = "public.users"
filter    = "{users}"
create    = "0.001 1000000 HASH siphash"
item      = "{id}"
cache-key = "{users}:{id}"
max-lag   = "1s"
END
say
cat "$folder/users.toml"
say
${with_parent[@]+"${with_parent[@]}"} "$tool" follow "$folder/users.toml" >"$folder/follow.log" 2>&1 &
follower=$!
has_heartbeat() {
  ! kill -0 "$follower" 2>/dev/null || [ "$(ask EXISTS '{users}:feed')" = 1 ]
}
within_a_minute "the follower did not start" "$folder/follow.log" has_heartbeat
kill -0 "$follower" 2>/dev/null || fail "the follower ended; its log:" "$(cat "$folder/follow.log")"
cat "$folder/follow.log"

headline "Readers and a writer that knows nothing of the guard"
say "A row that does not exist: the guard answers, PostgreSQL is not asked."
say
reader 100001
say
say "psql inserts it. The next reader loads it and stores it in the cache (BF.FILL); then it is a hit."
say
writer "INSERT INTO users VALUES (100001, 'Ada')"
reader 100001
say "\$ redis-cli BF.FILL {users} 100001 {users}:100001 $token VALUE Ada EX 600"
ask BF.FILL '{users}' 100001 '{users}:100001' "$token" VALUE Ada EX 600
reader 100001
say
say "psql changes the row: the cached value is gone, and the next reader loads the new one."
say
writer "UPDATE users SET name = 'Grace' WHERE id = 100001"
reader 100001
say
say "psql deletes it."
say
writer "DELETE FROM users WHERE id = 100001"
reader 100001
say
say "\$ bloomgate follow --status users.toml"
"$tool" follow --status "$folder/users.toml"

feed_hints() {
  cat <<END
In another terminal:

  $postgres/psql -h $socket -U shop shop
  redis-cli -p $port BF.FETCH {users} 7 {users}:7 WHILE {users}:feed
  $tool follow --status $folder/users.toml

docs/feed.md explains the configuration and the promises. The follower's log: $folder/follow.log

END
}
