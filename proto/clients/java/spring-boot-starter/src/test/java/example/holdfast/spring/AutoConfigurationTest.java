package example.holdfast.spring;

import static org.assertj.core.api.Assertions.assertThat;

import example.holdfast.Broker;
import example.holdfast.Hold;
import example.holdfast.Holdfast;
import io.micrometer.core.instrument.MeterRegistry;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.actuate.health.Status;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;

/** The beans, under conditions. */
@Timeout(60)
class AutoConfigurationTest {
    private final ApplicationContextRunner runner =
            new ApplicationContextRunner().withConfiguration(
                    AutoConfigurations.of(HoldfastAutoConfiguration.class));

    @Test
    void itCanBeTurnedOff() {
        runner.withPropertyValues("holdfast.enabled=false").run(context ->
                assertThat(context).doesNotHaveBean(Holdfast.class));
    }

    @Test
    void aBrokerThatIsNotThereFailsTheStart() {
        runner.withPropertyValues("holdfast.addresses=127.0.0.1:1",
                "holdfast.timeout=1s").run(context ->
                        assertThat(context).hasFailed());
    }

    @Test
    void propertiesAndCustomizersMakeTheOptions() throws IOException {
        AtomicReference<Hold> granted = new AtomicReference<>();
        try (Broker broker = Broker.start()) {
            runner.withClassLoader(new FilteredClassLoader(
                    MeterRegistry.class, HealthIndicator.class))
                    .withPropertyValues(
                            "holdfast.addresses=" + broker.address(),
                            "holdfast.name=till", "holdfast.keep=1s")
                    .withBean(HoldfastCustomizer.class,
                            () -> options -> options.onGrant(
                                    (hold, waited) -> granted.set(hold)))
                    .run(context -> {
                        Holdfast hf = context.getBean(Holdfast.class);
                        try (Hold hold = hf.lock("a");
                                var watch = hf.watch("a")) {
                            assertThat(granted.get()).isSameAs(hold);
                            assertThat(watch.next().orElseThrow().client())
                                    .isEqualTo("till");
                        }
                        assertThat(context).doesNotHaveBean(
                                HoldfastHealthIndicator.class);
                    });
        }
    }

    @Test
    void aBrokerThatHasEndedIsDown() throws IOException {
        try (Broker broker = Broker.start()) {
            runner.withPropertyValues("holdfast.addresses="
                    + broker.address()).run(context -> {
                        HealthIndicator health =
                                context.getBean(HealthIndicator.class);
                        assertThat(health.health().getStatus())
                                .isEqualTo(Status.UP);
                        broker.close();
                        assertThat(health.health().getStatus())
                                .isEqualTo(Status.DOWN);
                    });
        }
    }
}
