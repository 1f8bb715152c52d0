package example.holdfast.spring;

import example.holdfast.Holdfast;
import java.time.Duration;
import org.springframework.boot.actuate.health.AbstractHealthIndicator;
import org.springframework.boot.actuate.health.Health;

/** Up, if a broker answers. */
final class HoldfastHealthIndicator extends AbstractHealthIndicator {
    private static final Duration LIMIT = Duration.ofSeconds(3);

    private final Holdfast client;

    HoldfastHealthIndicator(Holdfast client) {
        super("Holdfast health check failed");
        this.client = client;
    }

    @Override
    protected void doHealthCheck(Health.Builder builder) {
        builder.up().withDetail("pingMs", client.ping(LIMIT).toMillis());
    }
}
