package example.holdfast.spring;

import example.holdfast.Holdfast;
import example.holdfast.Options;
import io.micrometer.core.instrument.MeterRegistry;
import org.springframework.aop.Advisor;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.beans.factory.config.ConfigurableBeanFactory;
import org.springframework.boot.actuate.autoconfigure.health.ConditionalOnEnabledHealthIndicator;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Role;
import org.springframework.core.Ordered;
import org.springframework.core.env.Environment;

/** Beans: the client, its annotation, its metrics and its health. */
@AutoConfiguration
@ConditionalOnProperty(name = "holdfast.enabled", matchIfMissing = true)
@EnableConfigurationProperties(HoldfastProperties.class)
public class HoldfastAutoConfiguration {
    /** Around transactions: they end while the lock is held. */
    private static final int ORDER = Ordered.LOWEST_PRECEDENCE - 100;

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

    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static Advisor holdfastLockedAdvisor(ObjectProvider<Holdfast> client,
            ConfigurableBeanFactory beans) {
        DefaultPointcutAdvisor advisor = new DefaultPointcutAdvisor(
                new AnnotationMatchingPointcut(null, HoldfastLocked.class,
                        true),
                new LockInterceptor(client::getObject, beans));
        advisor.setOrder(ORDER);
        return advisor;
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
