/**
 * Locks of a Holdfast broker for Spring Integration:
 * {@link example.holdfast.integration.HoldfastLockRegistry}.
 */
package example.holdfast.integration;
