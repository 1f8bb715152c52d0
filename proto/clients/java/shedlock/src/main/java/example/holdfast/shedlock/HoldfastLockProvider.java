package example.holdfast.shedlock;

import example.holdfast.Ask;
import example.holdfast.BusyException;
import example.holdfast.Detached;
import example.holdfast.Holdfast;
import example.holdfast.LockLostException;
import example.holdfast.NotHeldException;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.Utils;

/**
 * ShedLock with locks of a Holdfast broker. {@code lockAtMostFor} is the lease
 * of a detached hold, at most 24 hours: the lock outlives the connection and
 * the process until then. {@code lockAtLeastFor} goes on after the release.
 * The note of the lock is the name of the host.
 *
 * <p>Errors of the client, such as
 * {@link example.holdfast.UnavailableException}, are the caller's: ShedLock
 * does not run the task then.
 */
public final class HoldfastLockProvider implements ExtensibleLockProvider {
    private static final Duration LEASE_LEAST = Duration.ofMillis(1);

    private final Holdfast client;

    /**
     * A provider. It does not close the client.
     *
     * @param client the client
     */
    public HoldfastLockProvider(Holdfast client) {
        this.client = client;
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        Ask ask = Ask.within(Duration.ZERO).lease(lease(configuration))
                .note(Utils.getHostname());
        try {
            return Optional.of(new Held(configuration,
                    client.detached(configuration.getName(), ask)));
        } catch (BusyException held) {
            return Optional.empty();
        }
    }

    private static Duration lease(LockConfiguration configuration) {
        Duration most = configuration.getLockAtMostFor();
        return most.compareTo(LEASE_LEAST) < 0 ? LEASE_LEAST : most;
    }

    private static final class Held extends AbstractSimpleLock {
        private final Detached hold;

        Held(LockConfiguration configuration, Detached hold) {
            super(configuration);
            this.hold = hold;
        }

        @Override
        protected void doUnlock() {
            Duration rest = Duration.between(ClockProvider.now(),
                    lockConfiguration.getLockAtLeastUntil());
            try {
                if (rest.isNegative() || rest.isZero()) {
                    hold.release();
                } else {
                    hold.release(rest);
                }
            } catch (NotHeldException over) {
                return; // lockAtMostFor is over
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration next) {
            try {
                hold.renew(lease(next));
                return Optional.of(new Held(next, hold));
            } catch (NotHeldException | LockLostException over) {
                return Optional.empty();
            }
        }
    }
}
