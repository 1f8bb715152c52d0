package example.holdfast.spring;

import example.holdfast.Ask;
import example.holdfast.BusyException;
import example.holdfast.Hold;
import example.holdfast.Holdfast;
import example.holdfast.TimedOutException;
import java.lang.reflect.Method;
import java.lang.reflect.UndeclaredThrowableException;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.ProxyMethodInvocation;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.config.ConfigurableBeanFactory;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.context.expression.AnnotatedElementKey;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.core.ReactiveAdapterRegistry;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.Expression;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.scheduling.annotation.Async;

/** Runs methods with their locks. */
final class LockInterceptor implements MethodInterceptor {
    /** What a method's annotation says. */
    private record Plan(Method method, Expression name, Ask ask,
            boolean skip) {
    }

    private final Supplier<Holdfast> client;
    private final ConfigurableBeanFactory beans;
    private final ParameterNameDiscoverer parameters =
            new DefaultParameterNameDiscoverer();
    private final Map<AnnotatedElementKey, Plan> plans =
            new ConcurrentHashMap<>();

    LockInterceptor(Supplier<Holdfast> client,
            ConfigurableBeanFactory beans) {
        this.client = client;
        this.beans = beans;
    }

    @Override
    public Object invoke(MethodInvocation call) throws Throwable {
        Class<?> type = call.getThis() == null ? null
                : AopUtils.getTargetClass(call.getThis());
        Method method = AopUtils.getMostSpecificMethod(call.getMethod(), type);
        Plan plan = plans.computeIfAbsent(
                new AnnotatedElementKey(method, type), key -> plan(method));
        AtomicBoolean runs = new AtomicBoolean();
        try {
            return client.get().<Object, Exception>callLocked(
                    name(plan, call), plan.ask.owner("thread-"
                            + Thread.currentThread().getId()),
                    hold -> {
                        runs.set(true);
                        return run(call, hold);
                    });
        } catch (BusyException | TimedOutException held) {
            if (runs.get() || !plan.skip) { // by the method itself, maybe
                throw held;
            }
            return method.getReturnType() == Optional.class
                    ? Optional.empty() : null;
        }
    }

    private static Object run(MethodInvocation call, Hold hold)
            throws Exception {
        Object[] arguments = call.getArguments().clone();
        Class<?>[] types = call.getMethod().getParameterTypes();
        for (int i = 0; i < types.length; i++) {
            if (types[i] == Hold.class && arguments[i] == null) {
                arguments[i] = hold;
            }
        }
        ((ProxyMethodInvocation) call).setArguments(arguments);
        try {
            return call.proceed();
        } catch (Exception | Error failure) {
            throw failure;
        } catch (Throwable failure) {
            throw new UndeclaredThrowableException(failure);
        }
    }

    private String name(Plan plan, MethodInvocation call) {
        MethodBasedEvaluationContext context =
                new MethodBasedEvaluationContext(call.getThis(), plan.method,
                        call.getArguments(), parameters);
        context.setBeanResolver(new BeanFactoryResolver(beans));
        String name = plan.name.getValue(context, String.class);
        if (name == null || name.isEmpty()) {
            throw new IllegalStateException(plan.method + ": name=\""
                    + plan.name.getExpressionString() + "\" is empty");
        }
        return name;
    }

    private Plan plan(Method method) {
        HoldfastLocked locked = AnnotatedElementUtils.findMergedAnnotation(
                method, HoldfastLocked.class);
        check(method, locked);
        Duration wait = time(locked.within());
        if (wait == null && locked.skip()) {
            wait = Duration.ZERO;
        }
        Duration lease = time(locked.lease());
        Ask ask = (locked.shared() ? Ask.shared() : Ask.plain())
                .interrupts(locked.interrupts());
        ask = wait == null ? ask : ask.until(wait);
        ask = lease == null ? ask : ask.lease(lease);
        return new Plan(method, new SpelExpressionParser().parseExpression(
                locked.name()), ask, locked.skip());
    }

    private static void check(Method method, HoldfastLocked locked) {
        Class<?> result = method.getReturnType();
        boolean later = CompletionStage.class.isAssignableFrom(result)
                || ReactiveAdapterRegistry.getSharedInstance()
                        .getAdapter(result) != null;
        if (later && !AnnotatedElementUtils.hasAnnotation(method,
                Async.class)) {
            throw new IllegalStateException(method
                    + ": the lock would end before the result is there");
        }
        if (locked.skip() && result.isPrimitive() && result != void.class) {
            throw new IllegalStateException(method
                    + ": skip needs a result that may be null");
        }
    }

    private Duration time(String text) {
        String value = beans.resolveEmbeddedValue(text);
        return value == null || value.isBlank() ? null
                : DurationStyle.detectAndParse(value.strip());
    }
}
