package example.holdfast;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The core, by bytes and a clock of the test. */
class CoreTest {
    private double now = 1000;
    private final Core core = new Core(new Settings(null, null, "", 0, 0,
            false, false), () -> now, () -> 0.5);

    private void says(String text) {
        core.receive(ByteBuffer.wrap(
                text.getBytes(StandardCharsets.ISO_8859_1)));
    }

    private String sends() {
        return new String(core.take(), StandardCharsets.US_ASCII);
    }

    private Call locked() {
        Call call = core.lock(List.of("a"), Ask.plain(), false);
        core.dialing();
        core.connected(false);
        says("* HELLO proto=1 session=s\n");
        assertEquals("1 HELLO\n", sends());
        says("1 OK session=s silence_ms=10000\n");
        assertEquals("2 LOCK a owner=~1\n", sends());
        return call;
    }

    @Test
    void aDeadlineCountsFromTheSending() {
        Call call = locked();
        now += 2;
        says("2 OK fence=7 ttl_ms=10000 count=1 renewed=1\n");
        assertTrue(call.done);
        Grant grant = call.grants.get(0);
        assertEquals(1009.9, grant.deadline, 1e-6);
        now = core.due();
        core.tick();
        assertEquals("3 PING\n", sends());
        now = 1009.95;
        core.tick();
        assertEquals("deadline", grant.lost);
        assertEquals("4 UNLOCK a fence=7 owner=~1\n", sends());
    }

    private Grant leased() {
        Call call = locked();
        says("2 OK fence=7 ttl_ms=10000 count=1 lease_ms=60000\n");
        assertEquals(1009.9, call.grants.get(0).deadline, 1e-6);
        return call.grants.get(0);
    }

    @Test
    void aRenewWithoutAnAnswerBoundsTheDeadline() {
        Grant grant = leased();
        now += 1;
        core.renew(grant, 2);
        assertEquals("3 RENEW a fence=7 owner=~1 lease=2000\n", sends());
        assertEquals(1001 + 1.98 - 0.002, grant.deadline, 1e-6);
        core.renew(grant, 60); // a longer one bounds nothing
        assertEquals(1001 + 1.98 - 0.002, grant.deadline, 1e-6);
        now = 1002.99;
        core.tick();
        assertEquals("deadline", grant.lost);
    }

    @Test
    void anAnswerToARenewEndsItsBound() {
        Grant grant = leased();
        core.renew(grant, 2);
        says("3 ERR CONFLICT retry=0\n");
        assertEquals(1009.9, grant.deadline, 1e-6);
        core.renew(grant, 3);
        now += 1;
        says("4 OK ttl_ms=3000 lease_ms=3000\n");
        assertEquals(1000 + 2.97, grant.deadline, 1e-6);
        core.renew(grant, 1);
        now += 0.5;
        says("5 ERR INDOUBT retry=1\n");
        assertEquals(1001 + 0.99 - 0.002, grant.deadline, 1e-6);
    }

    @Test
    void aRenewOfADetachedHoldBoundsItToo() {
        Grant grant = leased();
        core.renewDetached(grant, 2);
        assertEquals(1000 + 1.98 - 0.002, grant.deadline, 1e-6);
    }

    @Test
    void aLaterUserOfAWatchHearsItsStateOnce() {
        locked();
        Call first = core.watch("w", false, null);
        says("3 OK\n");
        says("* FREE w\n");
        core.watch("w", false, null);
        List<Integer> told = core.events().stream()
                .filter(Event.Seen.class::isInstance)
                .map(seen -> ((Event.Seen) seen).users().length).toList();
        assertTrue(first.done);
        assertEquals(List.of(1, 1), told);
    }

    @Test
    void aClosedClientLosesItsHolds() {
        Grant grant = leased();
        core.events();
        core.close();
        assertEquals("closed", grant.lost);
        assertEquals(List.of(new Event.Lost(grant)), core.events());
    }

    @Test
    void aLateGrantIsConfirmedFirst() {
        Call call = locked();
        now += 60;
        says("2 OK fence=7 ttl_ms=10000 count=1 renewed=1\n");
        assertTrue(!call.done);
        core.tick();
        assertTrue(sends().endsWith("PING\n"));
        says("3 OK ttl_ms=10000\n");
        assertTrue(call.done);
        assertNull(call.failure);
    }

    @Test
    void bytesComeOneByOne() {
        Call call = locked();
        for (char each : "2 OK fence=7 ttl_ms=10000 :ok\r\n".toCharArray()) {
            says(String.valueOf(each));
        }
        assertTrue(call.done);
    }

    @Test
    void aLineWithoutAnEndIsBounded() {
        Call call = locked();
        says("x".repeat(Lines.LINE_MAX));
        assertTrue(!call.done);
        says("x");
        assertEquals("PROTOCOL", call.failure.code());
    }

    @Test
    void wordsAreBytes() throws Words.Garbage {
        byte[] all = new byte[256];
        for (int i = 0; i < all.length; i++) {
            all[i] = (byte) i;
        }
        String text = Names.of(all);
        assertArrayEquals(all, Names.bytes(text));
        assertEquals(text, Words.decode(Words.encode(text)));
        assertEquals("%3Aa:b%20%25%3D+%C3%A9%F0%9F%94%92",
                Words.encode(":a:b %=+\u00e9\ud83d\udd12"));
        assertThrows(Words.Garbage.class, () -> Words.decode("a%4"));
        assertThrows(UsageException.class, () -> Names.bytes("\ud83d"));
    }
}
