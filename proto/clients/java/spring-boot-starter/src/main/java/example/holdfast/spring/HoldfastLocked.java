package example.holdfast.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * A method that runs with a lock. A parameter of the type
 * {@link example.holdfast.Hold} gets the hold, where the caller passes null.
 *
 * <p>The thread is the owner: such methods may call each other with the same
 * lock, and brokers detect their deadlocks. At the loss of the lock the thread
 * is interrupted, and the caller gets a
 * {@link example.holdfast.LockLostException}. The lock is around a transaction
 * of the same method, and ends after it.
 *
 * <p>The lock ends with the method. A method that returns a future or a
 * reactive type is refused, unless it is {@code @Async}. Calls within a bean do
 * not pass the proxy of Spring, and take no lock.
 */
@Documented
@Inherited
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface HoldfastLocked {
    /**
     * The name of the lock, an expression of SpEL: {@code 'stock/' + #id}.
     *
     * @return the expression
     */
    String name();

    /**
     * The longest wait, such as {@code 5s} or <code>${stock.wait}</code>. By
     * default it has no limit, and with {@link #skip} it is 0.
     *
     * @return the time
     */
    String within() default "";

    /**
     * Whether a call without the lock does nothing, instead of a
     * {@link example.holdfast.BusyException} or
     * {@link example.holdfast.TimedOutException}. It returns null or an empty
     * {@link java.util.Optional}.
     *
     * @return true: it does nothing
     */
    boolean skip() default false;

    /**
     * The end of the lock, from the grant on. By default it lasts until the
     * method has ended.
     *
     * @return the time
     */
    String lease() default "";

    /**
     * Whether others share the lock that ask so.
     *
     * @return true: they do
     */
    boolean shared() default false;

    /**
     * Whether a loss interrupts the thread.
     *
     * @return false: it does not
     */
    boolean interrupts() default true;
}
