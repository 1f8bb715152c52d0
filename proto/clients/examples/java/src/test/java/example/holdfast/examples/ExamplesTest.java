package example.holdfast.examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import example.holdfast.Broker;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The examples say what their comments promise. */
@Timeout(60)
class ExamplesTest {
    private static Broker broker;
    private final ByteArrayOutputStream said = new ByteArrayOutputStream();
    private final PrintStream out = new PrintStream(said, true,
            StandardCharsets.UTF_8);

    @BeforeAll
    static void begin() throws IOException {
        broker = Broker.start();
    }

    @AfterAll
    static void end() {
        if (broker != null) {
            broker.close();
        }
    }

    private List<String> lines() {
        return said.toString(StandardCharsets.UTF_8).lines().toList();
    }

    @Test
    void theLateShopIsRefused() throws Exception {
        Stock.run(broker.address(), out);
        assertTrue(lines().get(0).matches("late shop: fence \\d+ is refused"),
                lines().toString());
        assertTrue(lines().get(1).startsWith("late shop: LOST"),
                lines().toString());
        assertEquals("20 sold, 80 left", lines().get(2));
    }

    @Test
    void eachJobRunsOnce() throws Exception {
        Job.run(broker.address(), out);
        assertEquals(3, lines().size(), lines().toString());
        assertEquals(3, lines().stream().map(line ->
                line.substring(line.lastIndexOf(' '))).distinct().count(),
                lines().toString());
    }
}
