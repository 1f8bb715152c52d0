package example.holdfast.examples;

import static java.time.Duration.ofSeconds;

import example.holdfast.Ask;
import example.holdfast.Hold;
import example.holdfast.Holdfast;
import example.holdfast.LockLostException;
import example.holdfast.Options;
import java.io.PrintStream;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Shops sell from one stock: each reads the amount, and writes it back. One of
 * them is paused until its lock is lost, and then writes what it has computed.
 * The database refuses that, since its fence is smaller than that of a later
 * holder.
 */
public final class Stock implements AutoCloseable {
    private static final String URL = "jdbc:h2:mem:stock;DB_CLOSE_DELAY=-1";
    private static final int SHOPS = 4;
    private static final int SALES = 5;

    private final Holdfast hf;
    private final PrintStream out;
    private final Connection tables = DriverManager.getConnection(URL);

    private Stock(String broker, PrintStream out) throws SQLException {
        this.out = out;
        try (var make = tables.createStatement()) {
            make.execute("CREATE TABLE stock (item VARCHAR PRIMARY KEY,"
                    + " amount INT, fence BIGINT)");
            make.execute("INSERT INTO stock VALUES ('pear', 100, 0)");
        }
        hf = Holdfast.connect(Options.at(broker));
    }

    @Override
    public void close() throws SQLException {
        hf.close();
        try (tables; var drop = tables.createStatement()) {
            drop.execute("DROP TABLE stock");
        }
    }

    private static int amount(Connection db) throws SQLException {
        try (var query = db.createStatement();
                ResultSet row = query.executeQuery(
                        "SELECT amount FROM stock WHERE item = 'pear'")) {
            row.next();
            return row.getInt(1);
        }
    }

    /** False: a later holder of the lock has written. */
    private static boolean write(Connection db, int amount, long fence)
            throws SQLException {
        try (PreparedStatement update = db.prepareStatement(
                "UPDATE stock SET amount = ?, fence = ?"
                        + " WHERE item = 'pear' AND fence <= ?")) {
            update.setInt(1, amount);
            update.setLong(2, fence);
            update.setLong(3, fence);
            return update.executeUpdate() == 1;
        }
    }

    private Void sell() throws SQLException {
        try (Connection db = DriverManager.getConnection(URL)) {
            for (int i = 0; i < SALES; i++) {
                try (Hold hold = hf.lock("stock/pear",
                        Ask.within(ofSeconds(30)))) {
                    if (!write(db, amount(db) - 1, hold.fence())) {
                        throw new IllegalStateException("fence "
                                + hold.fence() + " is refused");
                    }
                }
            }
        }
        return null;
    }

    /** A pause of the process is longer than the lease of its lock. */
    private Void sellLate(CountDownLatch reads, CountDownLatch sold)
            throws SQLException, InterruptedException {
        try (Connection db = DriverManager.getConnection(URL);
                Hold hold = hf.lock("stock/pear",
                        Ask.plain().lease(ofSeconds(1)))) {
            int amount = amount(db);
            reads.countDown();
            sold.await(); // the pause
            boolean written = write(db, amount - 1, hold.fence());
            out.println("late shop: fence " + hold.fence()
                    + (written ? " is written" : " is refused"));
        } catch (LockLostException lost) {
            out.println("late shop: " + lost.getMessage());
        }
        return null;
    }

    private void sellAll() throws Exception {
        CountDownLatch reads = new CountDownLatch(1);
        CountDownLatch sold = new CountDownLatch(1);
        ExecutorService shops = Executors.newCachedThreadPool();
        try {
            Future<Void> late = shops.submit(() -> sellLate(reads, sold));
            reads.await();
            List<Callable<Void>> others = new ArrayList<>();
            for (int i = 0; i < SHOPS; i++) {
                others.add(this::sell);
            }
            for (Future<Void> shop : shops.invokeAll(others)) {
                shop.get();
            }
            sold.countDown();
            late.get();
        } finally {
            shops.shutdownNow();
        }
        out.println(SHOPS * SALES + " sold, " + amount(tables) + " left");
    }

    static void run(String broker, PrintStream out) throws Exception {
        try (Stock stock = new Stock(broker, out)) {
            stock.sellAll();
        }
    }

    /**
     * Runs the example.
     *
     * @param arguments none; the property {@code broker} is an address
     * @throws Exception if a shop fails
     */
    public static void main(String[] arguments) throws Exception {
        run(System.getProperty("broker", "127.0.0.1:4653"), System.out);
    }
}
