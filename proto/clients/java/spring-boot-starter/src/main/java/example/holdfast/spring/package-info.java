/**
 * Holdfast for Spring Boot: a client as a bean, and methods with
 * {@link example.holdfast.spring.HoldfastLocked}.
 */
package example.holdfast.spring;
