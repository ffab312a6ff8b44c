# shellcheck shell=bash
# The demonstration of scripts/run --feed, which sources this file: a table with writers that do not use the guard, the
# follower, and a reader. The first part has the differences between PostgreSQL and MariaDB.
# shellcheck disable=SC2034,SC2154  # scripts/run sets some of these variables, and reads others

# The folder of the database's data and socket.
home=$folder/database
mkdir "$home"

if $mysql; then
  system=MariaDB client=mariadb execute=-e first=mysql table=users database_signal=TERM
  database_port=$(free_port 3400)
  url_of_database=mysql://gate@127.0.0.1:$database_port/shop
  follow=(env MYSQL_PWD=secret "$tool" follow)
  shell=(mariadb --no-defaults --user=root --socket="$home/socket")
  quiet=(--batch --skip-column-names)
  rows="SELECT seq, concat('user ', seq) FROM seq_1_to_100000"
  account="CREATE USER gate@'127.0.0.1' IDENTIFIED BY 'secret';
GRANT REPLICATION SLAVE, BINLOG MONITOR, REPLICA MONITOR ON *.* TO gate@'127.0.0.1';
GRANT SELECT ON shop.users TO gate@'127.0.0.1';"
  settings="SELECT concat('MariaDB ', substring_index(@@version, '-', 1), ', binlog_format ', @@binlog_format)"

  run_database() {
    mariadb_in "$home" "$database_port"
  }
else
  system=PostgreSQL client=psql execute=-c first=postgres table=public.users database_signal=INT
  postgres=$(dirname "$(command -v initdb)") || fail "PostgreSQL is missing"
  # PostgreSQL refuses to run as root. Debian's package makes the user postgres.
  as_postgres=(${with_parent[@]+"${with_parent[@]}"})
  if [ "$(id -u)" -eq 0 ]; then
    as_postgres+=(--reuid postgres --regid postgres --clear-groups)
    chmod 711 "$folder"
    chown postgres "$home"
  fi
  url_of_database=postgres://gate@${home//\//%2F}/shop
  follow=("$tool" follow)
  shell=("$postgres/psql" --host "$home" --username shop --no-psqlrc)
  quiet=(--quiet --tuples-only --no-align)
  rows="SELECT id, 'user ' || id FROM generate_series(1, 100000) id"
  account='CREATE PUBLICATION bloomgate FOR TABLE users;
CREATE ROLE gate LOGIN REPLICATION;
GRANT SELECT ON users TO gate;'
  settings="SELECT 'PostgreSQL ' || current_setting('server_version') || ', wal_level ' || current_setting('wal_level')"

  run_database() {
    cd "$home" && "${as_postgres[@]}" "$postgres/initdb" -D data -U shop -A trust -E UTF8 --no-locale --no-sync || exit
    exec "${as_postgres[@]}" "$postgres/postgres" -D data -h '' -k "$home" -c wal_level=logical
  }
fi

sql() {
  "${shell[@]}" "${quiet[@]}" "$@" shop
}

start_database() {
  run_database >"$folder/database.log" 2>&1 &
  database=$!
  within_a_minute "$system did not answer" "$folder/database.log" \
    "${shell[@]}" "$execute" 'CREATE DATABASE shop' "$first"
}

# reader ID: asks for a row. Sets `token` to the second line of the reply.
reader() {
  local reply
  say "\$ redis-cli BF.FETCH {users} $1 {users}:$1 WHILE {users}:feed"
  reply=$(ask BF.FETCH '{users}' "$1" "{users}:$1" WHILE '{users}:feed')
  say "$reply"
  token=$(sed -n 2p <<<"$reply")
}

# writer STATEMENT: a program that does not use the guard. Returns when the follower has applied the change.
writer() {
  say "\$ $client shop $execute \"$1\""
  "${shell[@]}" "$execute" "$1" shop
  written=$(ask TIME | paste -sd ' ' - | awk '{ printf "%d", $1 * 1000 + $2 / 1000 }')
  within_a_minute "the follower did not apply the change" "$folder/follow.log" applied
}

# Whether the heartbeat includes the last write. It is in the first line of its value.
applied() {
  local heartbeat
  heartbeat=$(ask GET '{users}:feed' | head -n 1)
  [ -n "$heartbeat" ] && [ "$heartbeat" -gt "$written" ]
}

headline "A database: 100,000 users in $system"
start_database
sql <<END
CREATE TABLE users (id bigint PRIMARY KEY, name varchar(100));
INSERT INTO users $rows;
$account
END
say "$(sql "$execute" "$settings"), data and socket in $home"

headline "The follower: bloomgate follow users.toml"
say "It fills the filter from the table, then reads $system's log and calls BF.CHANGED on behalf of all writers."
cat >"$folder/users.toml" <<END
database = "$url_of_database"
server   = "$url"
slot     = "bloomgate"
mode     = "eventual"

[[table]]
name      = "$table"
filter    = "{users}"
create    = "0.001 1000000 HASH siphash"
item      = "{id}"
cache-key = "{users}:{id}"
max-lag   = "1s"
END
say
cat "$folder/users.toml"
say
${with_parent[@]+"${with_parent[@]}"} "${follow[@]}" "$folder/users.toml" >"$folder/follow.log" 2>&1 &
follower=$!
has_heartbeat() {
  ! kill -0 "$follower" 2>/dev/null || [ "$(ask EXISTS '{users}:feed')" = 1 ]
}
within_a_minute "the follower did not start" "$folder/follow.log" has_heartbeat
kill -0 "$follower" 2>/dev/null || fail "the follower ended; its log:" "$(cat "$folder/follow.log")"
cat "$folder/follow.log"

headline "Readers and a writer that knows nothing of the guard"
say "A row that does not exist: the guard answers, $system is not asked. (With WHILE {users}:feed it does so"
say "only while the follower is at most max-lag behind the database.)"
say
reader 100001
say
say "$client inserts it. The next reader loads it and stores it in the cache (BF.FILL); then it is a hit."
say
writer "INSERT INTO users VALUES (100001, 'Ada')"
reader 100001
say "\$ redis-cli BF.FILL {users} 100001 {users}:100001 $token VALUE Ada EX 600"
ask BF.FILL '{users}' 100001 '{users}:100001' "$token" VALUE Ada EX 600
reader 100001
say
say "$client changes the row: the cached value is gone, and the next reader loads the new one."
say
writer "UPDATE users SET name = 'Grace' WHERE id = 100001"
reader 100001
say
say "$client deletes it."
say
writer "DELETE FROM users WHERE id = 100001"
reader 100001
say
say "\$ ${follow[*]/$tool/bloomgate} --status users.toml"
"${follow[@]}" --status "$folder/users.toml"

feed_hints() {
  cat <<END
In another terminal:

  ${shell[*]} shop
  redis-cli -p $port BF.FETCH {users} 7 {users}:7 WHILE {users}:feed
  ${follow[*]} --status $folder/users.toml

docs/feed.md explains the configuration and the promises. The follower's log: $folder/follow.log

END
}
