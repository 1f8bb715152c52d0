package example.holdfast.spring;

import example.holdfast.Holdfast;
import example.holdfast.Options;
import io.micrometer.core.instrument.MeterRegistry;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.actuate.autoconfigure.health.ConditionalOnEnabledHealthIndicator;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;

/** Beans: the client, its metrics and its health. */
@AutoConfiguration
@ConditionalOnProperty(name = "holdfast.enabled", matchIfMissing = true)
@EnableConfigurationProperties(HoldfastProperties.class)
public class HoldfastAutoConfiguration {
    /** For Spring. */
    public HoldfastAutoConfiguration() {
    }

    @Bean
    @ConditionalOnMissingBean
    Holdfast holdfast(HoldfastProperties properties, Environment environment,
            ObjectProvider<HoldfastCustomizer> customizers) {
        Options options = properties.options(
                environment.getProperty("spring.application.name"));
        for (HoldfastCustomizer each : customizers.orderedStream().toList()) {
            options = each.apply(options);
        }
        return Holdfast.connect(options);
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry.class)
    static class Metrics {
        @Bean
        HoldfastCustomizer holdfastMetrics(
                ObjectProvider<MeterRegistry> registries) {
            return options -> {
                MeterRegistry registry = registries.getIfAvailable();
                return registry == null ? options
                        : HoldfastMetrics.bind(options, registry);
            };
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({HealthIndicator.class,
        ConditionalOnEnabledHealthIndicator.class})
    @ConditionalOnEnabledHealthIndicator("holdfast")
    static class HealthCheck {
        @Bean
        @ConditionalOnMissingBean(name = "holdfastHealthIndicator")
        HealthIndicator holdfastHealthIndicator(Holdfast client) {
            return new HoldfastHealthIndicator(client);
        }
    }
}
