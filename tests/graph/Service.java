import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.EOFException;
import java.io.IOException;
import java.io.Reader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.ref.Reference;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * The configurable service of a service graph as a servlet of Tomcat: what `graphnode` (tests/src/graph/node) is with threads, but that it takes no
 * orders. Its part is in the file that the property graph.part names, whose lines tests/src/graph/servers.rs writes.
 */
public final class Service extends HttpServlet {
    private static final long serialVersionUID = 1L;
    /** A caller lets an idle connection go after this, sooner than the other end does. */
    private static final long KEPT_NS = TimeUnit.SECONDS.toNanos(4);
    /** A longer answer is none of ours. */
    private static final int ANSWER_BYTES_MAX = 16 << 10;
    /** Of every answer, as that of the other runtimes. */
    private static final byte[] BODY = ascii("{\"served\":true,\"note\":\"a body of about two hundred bytes, as small answers of services have it, "
            + "so that an answer is one segment and no more than that\"}\n");
    private static final byte[] REQUEST = ascii("GET /call HTTP/1.1\r\nHost: graph\r\n\r\n");
    private static final byte[] LAST_REQUEST = ascii("GET /call HTTP/1.1\r\nHost: graph\r\nConnection: close\r\n\r\n");
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final transient AtomicLong begun = new AtomicLong();
    private int cpuUs;
    private int sleepUs;
    private int allocateBytes;
    private transient Call[] calls;

    @Override
    public void init() throws ServletException {
        Properties part = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(System.getProperty("graph.part")))) {
            part.load(file);
        } catch (IOException e) {
            throw new ServletException("graph.part", e);
        }
        cpuUs = number(part, "cpu_us");
        sleepUs = number(part, "sleep_us");
        allocateBytes = number(part, "allocate_bytes");
        calls = new Call[number(part, "calls")];
        Arrays.setAll(calls, index -> new Call(part, index));
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.setStatus(isServed(begun.incrementAndGet()) ? 200 : 503);
        response.setContentType("application/json");
        response.setContentLength(BODY.length);
        response.getOutputStream().write(BODY);
    }

    /** Serves the request of this number, counted from 1, as the part says. */
    private boolean isServed(long number) {
        if (allocateBytes > 0) {
            byte[] allocated = new byte[allocateBytes];
            Arrays.fill(allocated, (byte) 1);
            Reference.reachabilityFence(allocated);
        }
        spin(cpuUs);
        if (sleepUs > 0) {
            LockSupport.parkNanos(TimeUnit.MICROSECONDS.toNanos(sleepUs));
        }
        for (Call call : calls) {
            if (call.isMade(number) && !call.isAnswered()) {
                return false;
            }
        }
        return true;
    }

    /** Takes so much CPU of this thread, however long that takes. */
    private static void spin(int micros) {
        long end = THREADS.getCurrentThreadCpuTime() + TimeUnit.MICROSECONDS.toNanos(micros);
        while (THREADS.getCurrentThreadCpuTime() < end) {
            Thread.onSpinWait();
        }
    }

    private static int number(Properties part, String name) {
        return Integer.parseInt(part.getProperty(name));
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    /** What is left until then, ms. */
    private static int left(long deadline) throws SocketTimeoutException {
        long ms = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
        if (ms <= 0) {
            throw new SocketTimeoutException("no time is left");
        }
        return (int) ms;
    }

    /** A call that requests make, and the connections that are kept for it: no more are open at a time, and whoever finds none free waits. */
    private static final class Call {
        private final int index;
        private final long sharePercent;
        private final int pool;
        private final int timeoutMs;
        private final InetSocketAddress to;
        private final Semaphore free;
        /** The longest idle first. */
        private final Deque<Connection> idle = new ArrayDeque<>();

        Call(Properties part, int index) {
            String name = "call." + index + ".";
            this.index = index;
            sharePercent = number(part, name + "share_percent");
            pool = number(part, name + "pool");
            timeoutMs = number(part, name + "timeout_ms");
            String[] address = part.getProperty(name + "to").split(":");
            to = new InetSocketAddress(address[0], Integer.parseInt(address[1]));
            free = new Semaphore(pool);
        }

        boolean isMade(long number) {
            // Calls of the same share are not all made by the same requests.
            long shifted = number + 37L * index;
            return shifted * sharePercent / 100 != (shifted - 1) * sharePercent / 100;
        }

        boolean isAnswered() {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
            if (pool == 0) {
                return isAnswered(null, deadline);
            }
            try {
                if (!free.tryAcquire(timeoutMs, TimeUnit.MILLISECONDS)) {
                    return false;
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            }
            try {
                return isAnswered(take(), deadline);
            } finally {
                free.release();
            }
        }

        /** Asks on this connection, or on a new one. */
        private boolean isAnswered(Connection kept, long deadline) {
            if (kept != null) {
                try {
                    return ask(kept, deadline);
                } catch (IOException e) {
                    kept.close();
                    // The other end closed it while the request was on its way: as every client does, once more on a new one.
                    if (kept.hasHeard() || e instanceof SocketTimeoutException) {
                        return false;
                    }
                }
            }
            Connection fresh = new Connection();
            try {
                fresh.open(to, deadline);
                return ask(fresh, deadline);
            } catch (IOException e) {
                fresh.close();
                return false;
            }
        }

        private boolean ask(Connection on, long deadline) throws IOException {
            int status = on.ask(pool == 0, deadline);
            if (on.ends()) {
                on.close();
            } else {
                keep(on);
            }
            return status == 200;
        }

        private synchronized void keep(Connection of) {
            of.idleSince = System.nanoTime();
            idle.addLast(of);
        }

        private synchronized Connection take() {
            long now = System.nanoTime();
            while (!idle.isEmpty() && now - idle.peekFirst().idleSince > KEPT_NS) {
                idle.pollFirst().close();
            }
            return idle.pollLast();
        }
    }

    /** A connection to another service, which has one request at a time. */
    private static final class Connection {
        private final Socket socket = new Socket();
        private final byte[] heard = new byte[ANSWER_BYTES_MAX];
        private int length;
        private boolean ends;
        private long idleSince;

        void open(InetSocketAddress to, long deadline) throws IOException {
            socket.setTcpNoDelay(true);
            socket.connect(to, left(deadline));
        }

        /** Asks, and waits until the answer is whole; its status. */
        int ask(boolean isLast, long deadline) throws IOException {
            length = 0;
            ends = isLast;
            socket.getOutputStream().write(isLast ? LAST_REQUEST : REQUEST);
            int head = endOfHead();
            while (head < 0) {
                hear(deadline);
                head = endOfHead();
            }
            String[] lines = new String(heard, 0, head, StandardCharsets.ISO_8859_1).split("\r\n");
            int body = -1;
            for (String line : lines) {
                String[] field = line.toLowerCase(Locale.ROOT).split(":", 2);
                if (field[0].equals("content-length")) {
                    body = Integer.parseInt(field[1].trim());
                }
                ends |= field[0].equals("connection") && field[1].trim().equals("close");
            }
            // What has no length goes on until its connection ends, and nobody reads it.
            ends |= body < 0;
            while (length < head + 4 + body) {
                hear(deadline);
            }
            return Integer.parseInt(lines[0].substring(9, 12));
        }

        /** Whether the connection ends with the last answer. */
        boolean ends() {
            return ends;
        }

        /** Whether anything came of the last answer. */
        boolean hasHeard() {
            return length > 0;
        }

        void close() {
            try {
                socket.close();
            } catch (IOException e) {
                // It is gone either way.
            }
        }

        private void hear(long deadline) throws IOException {
            if (length == heard.length) {
                throw new IOException("an answer of more than " + ANSWER_BYTES_MAX + " bytes");
            }
            socket.setSoTimeout(left(deadline));
            int read = socket.getInputStream().read(heard, length, heard.length - length);
            if (read < 0) {
                throw new EOFException("the connection was closed before its answer");
            }
            length += read;
        }

        private int endOfHead() {
            for (int at = 0; at + 4 <= length; at++) {
                if (heard[at] == '\r' && heard[at + 1] == '\n' && heard[at + 2] == '\r' && heard[at + 3] == '\n') {
                    return at;
                }
            }
            return -1;
        }
    }
}
