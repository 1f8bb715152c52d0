package example.holdfast.spring;

import example.holdfast.Options;
import java.util.function.UnaryOperator;

/** A bean that changes the options of the client before it connects. */
@FunctionalInterface
public interface HoldfastCustomizer extends UnaryOperator<Options> {
}
