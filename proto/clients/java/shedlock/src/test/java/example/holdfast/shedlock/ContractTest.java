package example.holdfast.shedlock;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import example.holdfast.Ask;
import example.holdfast.Broker;
import example.holdfast.BusyException;
import example.holdfast.Holdfast;
import example.holdfast.Options;
import example.holdfast.UsageException;
import java.io.IOException;
import java.time.Duration;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** ShedLock's own tests of a provider, and those of Holdfast's part. */
@Timeout(60)
public class ContractTest
        extends AbstractExtensibleLockProviderIntegrationTest {
    private static final Ask NOW = Ask.within(Duration.ZERO);
    private static Broker broker;
    private static Holdfast hf;
    private static Holdfast other;

    @BeforeAll
    static void begin() throws IOException {
        broker = Broker.start();
        hf = Holdfast.connect(Options.at(broker.address()));
        other = Holdfast.connect(Options.at(broker.address()));
    }

    @AfterAll
    static void end() {
        if (broker != null) {
            hf.close();
            other.close();
            broker.close();
        }
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return new HoldfastLockProvider(hf);
    }

    @Override
    protected void assertLocked(String name) {
        assertThrows(BusyException.class, () -> other.lock(name, NOW));
    }

    @Override
    protected void assertUnlocked(String name) {
        other.lock(name, NOW).close();
    }

    @Test
    void aLockOutlivesItsProcessUntilItsEnd() {
        Holdfast dies = Holdfast.connect(Options.at(broker.address()));
        new HoldfastLockProvider(dies).lock(lockConfig(LOCK_NAME1,
                Duration.ofMillis(1500), Duration.ZERO)).orElseThrow();
        dies.close();
        assertLocked(LOCK_NAME1);
        other.lock(LOCK_NAME1, Ask.within(Duration.ofSeconds(20))).close();
    }

    // Two of the contract have leases of a few ms, which brokers refuse.

    @Test
    @Override
    public void shouldTimeout() {
        brief();
        other.lock(LOCK_NAME1).close();
        brief().unlock();
        assertUnlocked(LOCK_NAME1);
    }

    @Test
    @Override
    public void shouldNotBeAbleToExtendExpiredLock() {
        SimpleLock lock = brief();
        other.lock(LOCK_NAME1).close();
        assertTrue(lock.extend(Duration.ofSeconds(10), Duration.ZERO)
                .isEmpty());
        assertUnlocked(LOCK_NAME1);
    }

    private SimpleLock brief() {
        return getLockProvider().lock(lockConfig(LOCK_NAME1,
                Duration.ofSeconds(1), Duration.ZERO)).orElseThrow();
    }

    @Test
    void anEndThatHasPassedIsNoError() {
        SimpleLock lock = brief();
        other.lock(LOCK_NAME1).close();
        lock.unlock();
        assertThrows(IllegalStateException.class, lock::unlock);
    }

    @Test
    void aDayIsTheLongestLease() {
        UsageException refused = assertThrows(UsageException.class,
                () -> getLockProvider().lock(lockConfig(LOCK_NAME1,
                        Duration.ofHours(25), Duration.ZERO)));
        assertFalse(refused.retry());
    }
}
