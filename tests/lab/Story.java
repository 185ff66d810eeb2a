import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import javax.sql.DataSource;

/**
 * The page of a bulletin board: GET /story?id=N[&comment=1], and GET /story?rebuild=MS, which rebuilds an index under a lock. Three queries read the story, its author and its comments; with
 * comment=1 a fourth statement adds one and waits for the database's log to reach the disk. One connection of the pool is
 * held for all of them, as such applications do.
 */
public final class Story extends HttpServlet {
    private static final long serialVersionUID = 1L;
    private transient DataSource pool;
    private final transient ReentrantReadWriteLock index = new ReentrantReadWriteLock();
    /** What a request keeps until it is answered, in kB: `Heap.kept_kb` of the lab. */
    private static final int KEPT_KB = Integer.getInteger("lab.kept_kb", 0);

    @Override
    public void init() throws ServletException {
        try {
            pool = (DataSource) new InitialContext().lookup("java:comp/env/jdbc/bulletin");
            // Opens the pool's connections now and not in the first request.
            pool.getConnection().close();
        } catch (NamingException | SQLException e) {
            throw new ServletException("jdbc/bulletin", e);
        }
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        if (request.getParameter("rebuild") != null) {
            rebuild(request, response);
            return;
        }
        // Every request reads the index that a rebuild replaces.
        index.readLock().lock();
        index.readLock().unlock();
        int id;
        try {
            id = Integer.parseInt(request.getParameter("id"));
        } catch (NumberFormatException e) {
            response.sendError(400, "id must be a number");
            return;
        }
        StringBuilder page = new StringBuilder(4096);
        byte[][] kept = kept();
        try (Connection db = pool.getConnection()) {
            int author = story(db, id, page);
            if (author == 0) {
                response.sendError(404);
                return;
            }
            author(db, author, page);
            comments(db, id, page);
            if (request.getParameter("comment") != null) {
                comment(db, id, author);
            }
        } catch (SQLException e) {
            log("story " + id, e);
            response.sendError(503, "database");
            return;
        } finally {
            Reference.reachabilityFence(kept);
        }
        byte[] bytes = page.append("</body></html>\n").toString().getBytes(StandardCharsets.UTF_8);
        response.setContentType("text/html;charset=utf-8");
        response.setContentLength(bytes.length);
        response.getOutputStream().write(bytes);
    }

    /** Stands for what frameworks hold for a request: many small objects, as 16 of 64 bytes with their headers for each kB. */
    private static byte[][] kept() {
        byte[][] kept = new byte[KEPT_KB * 16][];
        for (int i = 0; i < kept.length; i++) {
            kept[i] = new byte[48];
        }
        return kept;
    }

    /** Stands for work on shared data under a lock; says when it held it. */
    private void rebuild(HttpServletRequest request, HttpServletResponse response) throws IOException {
        index.writeLock().lock();
        Instant start = Instant.now();
        Instant end;
        try {
            Thread.sleep(Long.parseLong(request.getParameter("rebuild")));
        } catch (NumberFormatException e) {
            response.sendError(400, "rebuild must be a number");
            return;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            end = Instant.now();
            index.writeLock().unlock();
        }
        byte[] bytes = ("{\"start_unix_ns\":" + nanos(start) + ",\"end_unix_ns\":" + nanos(end) + "}").getBytes(StandardCharsets.UTF_8);
        response.setContentType("application/json");
        response.setContentLength(bytes.length);
        response.getOutputStream().write(bytes);
    }

    private static long nanos(Instant at) {
        return at.getEpochSecond() * 1_000_000_000L + at.getNano();
    }

    private static int story(Connection db, int id, StringBuilder page) throws SQLException {
        try (PreparedStatement query = db.prepareStatement("SELECT title, body, author FROM stories WHERE id = ?")) {
            query.setInt(1, id);
            try (ResultSet row = query.executeQuery()) {
                if (!row.next()) {
                    return 0;
                }
                page.append("<html><body><h1>").append(row.getString(1)).append("</h1><p>").append(row.getString(2)).append("</p>");
                return row.getInt(3);
            }
        }
    }

    private static void author(Connection db, int id, StringBuilder page) throws SQLException {
        try (PreparedStatement query = db.prepareStatement("SELECT nickname, rating FROM users WHERE id = ?")) {
            query.setInt(1, id);
            try (ResultSet row = query.executeQuery()) {
                if (row.next()) {
                    page.append("<p>by ").append(row.getString(1)).append(" (").append(row.getInt(2)).append(")</p>");
                }
            }
        }
    }

    private static void comments(Connection db, int story, StringBuilder page) throws SQLException {
        try (PreparedStatement query = db.prepareStatement(
                "SELECT c.body, u.nickname FROM comments c JOIN users u ON u.id = c.author WHERE c.story = ? ORDER BY c.id LIMIT 10")) {
            query.setInt(1, story);
            try (ResultSet row = query.executeQuery()) {
                while (row.next()) {
                    page.append("<p>").append(row.getString(2)).append(": ").append(row.getString(1)).append("</p>");
                }
            }
        }
    }

    private static void comment(Connection db, int story, int author) throws SQLException {
        try (PreparedStatement insert = db.prepareStatement("INSERT INTO comments (story, author, body) VALUES (?, ?, 'me too')")) {
            insert.setInt(1, story);
            insert.setInt(2, author);
            insert.executeUpdate();
        }
    }
}
