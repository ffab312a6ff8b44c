package io.bloomgate;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Locale;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A server that answers as a case says. */
final class ScriptedServer implements Closeable {
    /** How long the runner waits for what has to come. */
    static final long PATIENCE_SECONDS = 60;

    /** Commands of client libraries, which no case mentions. */
    private static final List<String> AUTOMATIC =
            List.of("HELLO", "AUTH", "CLIENT", "SELECT", "READONLY", "COMMAND", "PING", "QUIT", "INFO");

    private static final String INFO = "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n";

    /** A command that has arrived. */
    final class Arrival {
        final Connected connection;
        final List<byte[]> words;
        private byte[] reply;

        Arrival(Connected connection, List<byte[]> words) {
            this.connection = connection;
            this.words = words;
        }

        private boolean waits() {
            return word(0).equals("BF.FETCH") && words.stream().skip(4).anyMatch(w -> Keys.latin(w).equals("WAIT"));
        }

        private String word(int index) {
            return index < words.size() ? Keys.latin(words.get(index)).toUpperCase(Locale.ROOT) : "";
        }

        void answer(JsonNode reply) throws IOException {
            if (reply.has("close")) {
                connection.socket.close();
            } else {
                connection.answer(this, Words.encode(reply, connection.protocol));
            }
        }

        @Override
        public String toString() {
            List<String> shown = words.stream().limit(40).map(word -> new String(word, StandardCharsets.UTF_8)).toList();
            return "`" + String.join(" ", shown) + "`";
        }
    }

    /** One connection of the client. Replies are sent in the order of the commands. */
    final class Connected implements Runnable {
        private final Socket socket;
        private final Deque<Arrival> unanswered = new ArrayDeque<>();
        private volatile int protocol = 2;

        Connected(Socket socket) {
            this.socket = socket;
        }

        @Override
        public void run() {
            try (InputStream input = new BufferedInputStream(socket.getInputStream())) {
                for (;;) {
                    arrive(new Arrival(this, command(input)));
                }
            } catch (IOException ended) {
                // The client has closed the connection, or the case has.
            }
        }

        private void arrive(Arrival arrival) throws IOException {
            synchronized (this) {
                unanswered.stream().filter(Arrival::waits).findFirst()
                        .ifPresent(earlier -> violations.add(arrival + " came behind the unanswered " + earlier));
                unanswered.add(arrival);
            }
            if (AUTOMATIC.contains(arrival.word(0))) {
                answer(arrival, automatic(arrival));
            } else {
                arrived.add(arrival);
            }
        }

        private byte[] automatic(Arrival arrival) {
            switch (arrival.word(0)) {
                case "HELLO":
                    protocol = arrival.words.size() > 1 ? Integer.parseInt(arrival.word(1)) : protocol;
                    String head = protocol == 2 ? "*14\r\n" : "%7\r\n";
                    return (head + "$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:" + protocol
                            + "\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"
                            + "$7\r\nmodules\r\n*0\r\n").getBytes(StandardCharsets.UTF_8);
                case "INFO":
                    return ("$" + INFO.length() + "\r\n" + INFO + "\r\n").getBytes(StandardCharsets.UTF_8);
                case "COMMAND":
                    return "*0\r\n".getBytes(StandardCharsets.UTF_8);
                case "PING":
                    return "+PONG\r\n".getBytes(StandardCharsets.UTF_8);
                default:
                    String reply = arrival.word(1).equals("MAINT_NOTIFICATIONS") ? "-ERR unknown subcommand" : "+OK";
                    return (arrival.word(1).equals("ID") ? ":1\r\n" : reply + "\r\n").getBytes(StandardCharsets.UTF_8);
            }
        }

        private synchronized void answer(Arrival arrival, byte[] reply) throws IOException {
            arrival.reply = reply;
            while (!unanswered.isEmpty() && unanswered.peek().reply != null) {
                byte[] next = unanswered.poll().reply;
                try {
                    socket.getOutputStream().write(next);
                } catch (IOException closed) {
                    // The client does not want the reply any more.
                    return;
                }
            }
        }
    }

    private final ServerSocket listener;
    private final Queue<Connected> connections = new ConcurrentLinkedQueue<>();
    private final BlockingQueue<Arrival> arrived = new LinkedBlockingQueue<>();
    /** What is wrong with commands that have arrived, whatever the case expects. */
    final Queue<String> violations = new ConcurrentLinkedQueue<>();

    ScriptedServer() throws IOException {
        listener = new ServerSocket(0, 100, InetAddress.getLoopbackAddress());
        start(() -> {
            try {
                for (;;) {
                    Socket socket = listener.accept();
                    socket.setTcpNoDelay(true);
                    Connected connected = new Connected(socket);
                    connections.add(connected);
                    start(connected);
                }
            } catch (IOException ended) {
                // The case has ended.
            }
        });
    }

    private static void start(Runnable task) {
        Thread thread = new Thread(task, "scripted server");
        thread.setDaemon(true);
        thread.start();
    }

    int port() {
        return listener.getLocalPort();
    }

    private static List<byte[]> command(InputStream input) throws IOException {
        List<byte[]> words = new ArrayList<>();
        long count = number(input);
        while (words.size() < count) {
            int length = (int) number(input);
            byte[] word = input.readNBytes(length);
            if (word.length < length || input.readNBytes(2).length < 2) {
                throw new EOFException();
            }
            words.add(word);
        }
        return words;
    }

    private static long number(InputStream input) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next = input.read(); next != '\n'; next = input.read()) {
            if (next < 0) {
                throw new EOFException();
            }
            line.append((char) next);
        }
        return Long.parseLong(line.substring(1).trim());
    }

    /** Takes the next command from the queue, which has those of all connections in the order of their arrival. */
    Arrival next(Object wanted) throws InterruptedException {
        Arrival arrival = arrived.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
        if (arrival == null) {
            throw new AssertionError("no command arrived, expected " + wanted);
        }
        return arrival;
    }

    /** Returns the first command that nobody has taken. */
    Arrival unexpected() {
        return arrived.peek();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        for (Connected connected : connections) {
            connected.socket.close();
        }
    }
}
