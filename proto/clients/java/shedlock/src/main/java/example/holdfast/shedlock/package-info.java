/**
 * Locks of a Holdfast broker for ShedLock:
 * {@link example.holdfast.shedlock.HoldfastLockProvider}.
 */
package example.holdfast.shedlock;
