package io.bloomgate.spring;

import io.bloomgate.Bloomgate;
import io.bloomgate.Filter;
import io.bloomgate.Servers;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import javax.sql.DataSource;
import org.opentest4j.TestAbortedException;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.util.FileSystemUtils;

/** A real database in a temporary folder with a table of users, and {@code bloomgate follow}. A test without their programs is skipped. */
final class SqlServer implements AutoCloseable {
    private static final boolean IS_ROOT = System.getProperty("user.name").equals("root");
    private static final String FOLLOWER = System.getenv("BLOOMGATE_TOOL") != null ? System.getenv("BLOOMGATE_TOOL")
            : Path.of("../../../target/debug/bloomgate").toAbsolutePath().normalize().toString();

    private final Path folder;
    private final List<Process> processes = new ArrayList<>();
    private final DriverManagerDataSource source;
    private final String url;
    final JdbcTemplate jdbc;

    private SqlServer(Path folder, String jdbcUrl, String user, String url) {
        this.folder = folder;
        this.url = url;
        source = new DriverManagerDataSource(jdbcUrl, user, "");
        jdbc = new JdbcTemplate(source);
    }

    /** Starts PostgreSQL, with a log that a follower can read. */
    static SqlServer postgres() throws IOException {
        String initdb = program("initdb");
        Path folder = Files.createTempDirectory("bloomgate-pg");
        List<String> prefix = List.of();
        if (IS_ROOT) {
            // PostgreSQL refuses to run as root.
            Files.setOwner(folder, folder.getFileSystem().getUserPrincipalLookupService().lookupPrincipalByName("postgres"));
            prefix = List.of(program("setpriv"), "--reuid=postgres", "--regid=postgres", "--clear-groups");
        }
        int port = freePort();
        var server = new SqlServer(folder, "jdbc:postgresql://127.0.0.1:" + port + "/postgres", "guard",
                "postgres://guard@127.0.0.1:" + port + "/postgres");
        server.run("initdb", join(prefix, initdb, "-D", "data", "-U", "guard", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"));
        server.launch("postgres", join(prefix, Path.of(initdb).resolveSibling("postgres").toString(), "-D", "data", "-c", "wal_level=logical",
                "-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", "port=" + port, "-c", "unix_socket_directories="));
        return server.ready("postgres");
    }

    /** Starts MariaDB, with a log that a follower can read. */
    static SqlServer mariadb() throws IOException {
        String install = program("mariadb-install-db");
        String daemon = program("mariadbd");
        Path folder = Files.createTempDirectory("bloomgate-maria");
        int port = freePort();
        var server = new SqlServer(folder, "jdbc:mariadb://127.0.0.1:" + port + "/mysql", "root",
                "mysql://root@127.0.0.1:" + port + "/mysql");
        List<String> words = new ArrayList<>(List.of("--no-defaults", "--datadir=" + folder.resolve("data"), "--innodb-log-file-size=8M"));
        if (IS_ROOT) {
            words.add("--user=root");
        }
        server.run("install", join(join(List.of(install), words), "--auth-root-authentication-method=normal", "--skip-test-db"));
        server.launch("mariadb", join(join(List.of(daemon), words), "--bind-address=127.0.0.1", "--port=" + port,
                "--socket=" + folder.resolve("socket"), "--log-bin=binlog", "--binlog-format=ROW", "--server-id=1", "--skip-name-resolve"));
        return server.ready("mariadb");
    }

    DataSource source() {
        return source;
    }

    String url() {
        return source.getUrl();
    }

    /** Follows the table of users into a filter, and waits for the heartbeat. */
    void follow(String filter, Servers.Server redis) throws IOException {
        if (!Files.isExecutable(Path.of(FOLLOWER))) {
            throw new TestAbortedException("there is no tool at " + FOLLOWER + ": cargo build -p bloomgate-tool makes it");
        }
        Path configuration = folder.resolve("follow.toml");
        Files.writeString(configuration, """
                database = "%s"
                server = "redis://127.0.0.1:%d"
                slot = "bloomgate"
                [[table]]
                name = "users"
                filter = "%s"
                create = "0.000001 10000 HASH siphash"
                item = "{id}"
                cache-key = "{%s}:{id}"
                max-lag = "1h"
                """.formatted(url, redis.port(), filter, filter));
        if (url.startsWith("postgres:")) {
            jdbc.execute("CREATE PUBLICATION bloomgate FOR TABLE users");
        }
        launch("follow", List.of(FOLLOWER, "follow", configuration.toString()));
        Servers.eventually("the follower", () -> {
            checkAlive(1, "follow");
            return redis.commands().exists("{" + filter + "}:feed") == 1;
        });
    }

    /** Waits until the follower has applied all earlier commits, by inserting a new row, which stays. */
    void awaitFollower(String filter, Bloomgate client, long newId) {
        jdbc.update("INSERT INTO users VALUES (?, 'a mark')", newId);
        Servers.eventually("the follower", () -> {
            checkAlive(1, "follow");
            return new Filter(client, filter).contains(newId);
        });
    }

    private void checkAlive(int index, String name) {
        if (!processes.get(index).isAlive()) {
            throw new AssertionError(name + " has ended:\n" + log(name));
        }
    }

    /** Returns the path of a program. Debian installs MariaDB's server in a folder that may not be on the PATH. */
    private static String program(String name) {
        return Stream.of((System.getenv("PATH") + File.pathSeparator + "/usr/sbin").split(File.pathSeparator))
                .map(folder -> Path.of(folder, name)).filter(Files::isExecutable).findFirst().map(Path::toString)
                .orElseThrow(() -> new TestAbortedException(name + " is not on the PATH: scripts/setup --test installs it"));
    }

    private static List<String> join(List<String> first, String... rest) {
        return join(first, List.of(rest));
    }

    private static List<String> join(List<String> first, List<String> rest) {
        return Stream.concat(first.stream(), rest.stream()).toList();
    }

    private static int freePort() throws IOException {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return listener.getLocalPort();
        }
    }

    private Process begin(String name, List<String> words) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(words).directory(folder.toFile()).redirectErrorStream(true)
                .redirectOutput(folder.resolve(name + ".log").toFile());
        builder.environment().put("LC_ALL", "C");
        // MariaDB deletes temporary tables in this folder when it starts.
        builder.environment().put("TMPDIR", folder.toString());
        return builder.start();
    }

    private void launch(String name, List<String> words) throws IOException {
        Process process = begin(name, words);
        // Ends the process even if the tests end first.
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
        processes.add(process);
    }

    private void run(String name, List<String> words) throws IOException {
        if (begin(name, words).onExit().join().exitValue() != 0) {
            throw new AssertionError(name + " has failed:\n" + log(name));
        }
    }

    private String log(String name) {
        try {
            return Files.readString(folder.resolve(name + ".log"));
        } catch (IOException error) {
            return error.toString();
        }
    }

    /** Waits until the database answers, and creates the table. */
    private SqlServer ready(String name) {
        Servers.eventually(name, () -> {
            checkAlive(0, name);
            try {
                jdbc.execute("CREATE TABLE users (id bigint PRIMARY KEY, name varchar(100))");
                return true;
            } catch (RuntimeException refused) {
                return false;
            }
        });
        return this;
    }

    @Override
    public void close() throws IOException {
        processes.forEach(process -> process.destroyForcibly().onExit().join());
        FileSystemUtils.deleteRecursively(folder);
    }
}
