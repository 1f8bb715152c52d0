package example.holdfast.integration;

import example.holdfast.Hold;
import example.holdfast.Holdfast;
import java.util.Optional;
import java.util.concurrent.locks.Lock;
import org.springframework.beans.BeanUtils;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/**
 * Spring Integration with locks of a Holdfast broker. They are those of
 * {@link Holdfast#asLock(String)}: re-entrant, and owned by the thread.
 * {@code unlock()} throws a {@link example.holdfast.LockLostException} if the
 * lock was lost before.
 *
 * <p>Without a broker, calls throw an
 * {@link example.holdfast.UnavailableException}. An entry costs no memory once
 * its lock is free, so nothing needs to expire.
 */
public final class HoldfastLockRegistry implements RenewableLockRegistry {
    private final Holdfast client;
    private final String prefix;

    /**
     * A registry. It does not close the client.
     *
     * @param client the client
     * @param registryKey begins the names of all its locks:
     *     {@code registryKey/lockKey}
     */
    public HoldfastLockRegistry(Holdfast client, String registryKey) {
        this.client = client;
        prefix = registryKey + "/";
    }

    /**
     * The lock of a key.
     *
     * @param lockKey a string, or another value whose text is the same in each
     *     process: a number, a UUID, an enum
     * @return the lock
     * @throws IllegalArgumentException if the key is of another type
     */
    @Override
    public Lock obtain(Object lockKey) {
        return client.asLock(name(lockKey));
    }

    /**
     * Fails unless this thread holds the lock. Brokers renew it by themselves,
     * so a scheduler is not needed either.
     *
     * @param lockKey as of {@link #obtain}
     * @throws IllegalStateException if this thread does not hold the lock
     * @throws example.holdfast.LockLostException if it is lost
     */
    @Override
    public void renewLock(Object lockKey) {
        held(lockKey).orElseThrow(() -> new IllegalStateException(
                "this thread does not hold " + name(lockKey))).check();
    }

    /**
     * What this thread holds: its fence protects what is written.
     *
     * @param lockKey as of {@link #obtain}
     * @return the hold; empty if this thread does not hold the lock
     */
    public Optional<Hold> held(Object lockKey) {
        return client.held(name(lockKey));
    }

    private String name(Object lockKey) {
        if (!BeanUtils.isSimpleValueType(lockKey.getClass())) {
            throw new IllegalArgumentException("a lock key of "
                    + lockKey.getClass() + ": its text may differ elsewhere");
        }
        return prefix + lockKey;
    }
}
