package io.bloomgate;

import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A server whose replies a test provides. It answers Lettuce's own commands by itself, in RESP3. */
final class ScriptedServer implements Closeable {
    private static final Map<String, String> AUTOMATIC = Map.of(
            "HELLO", "%3\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
            "CLIENT", "+OK\r\n", "PING", "+PONG\r\n", "COMMAND", "*0\r\n");

    /** A command that has arrived: its name, and the socket for the reply. */
    record Arrival(String name, Socket socket) {
        /** Sends a reply in the format of the protocol. */
        void answer(String reply) throws IOException {
            socket.getOutputStream().write(reply.getBytes(StandardCharsets.UTF_8));
        }
    }

    private final ServerSocket listener;
    private final Queue<Socket> sockets = new ConcurrentLinkedQueue<>();
    private final BlockingQueue<Arrival> arrived = new LinkedBlockingQueue<>();

    ScriptedServer() throws IOException {
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        inBackground(() -> {
            while (true) {
                Socket socket = listener.accept();
                sockets.add(socket);
                inBackground(() -> serve(socket));
            }
        });
    }

    private interface Serving {
        void run() throws IOException;
    }

    private static void inBackground(Serving serving) {
        Thread thread = new Thread(() -> {
            try {
                serving.run();
            } catch (IOException closed) {
                // The client or the test is done.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    int port() {
        return listener.getLocalPort();
    }

    private void serve(Socket socket) throws IOException {
        InputStream input = new BufferedInputStream(socket.getInputStream());
        while (true) {
            String name = null;
            for (int left = number(input); left > 0; left--) {
                byte[] word = input.readNBytes(number(input));
                input.skipNBytes(2);
                name = name == null ? new String(word, StandardCharsets.UTF_8).toUpperCase(Locale.ROOT) : name;
            }
            Arrival arrival = new Arrival(name, socket);
            if (AUTOMATIC.containsKey(name)) {
                arrival.answer(AUTOMATIC.get(name));
            } else {
                arrived.add(arrival);
            }
        }
    }

    /** Reads the number in a line, after the first character. */
    private static int number(InputStream input) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next = input.read(); next != '\n'; next = input.read()) {
            if (next < 0) {
                throw new EOFException();
            }
            line.append((char) next);
        }
        return Integer.parseInt(line.substring(1).trim());
    }

    /** Returns the next command of all connections. */
    Arrival next(String what) throws InterruptedException {
        Arrival next = arrived.poll(60, TimeUnit.SECONDS);
        if (next == null) {
            throw new AssertionError("no command arrived, but " + what + " was expected");
        }
        return next;
    }

    /** Returns the first command that no caller has taken, or null. */
    Arrival unexpected() {
        return arrived.peek();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        for (Socket socket : sockets) {
            socket.close();
        }
    }
}
