package example.holdfast;

/**
 * The holder of a watched lock, or a member of a watched group.
 *
 * @param name of the lock
 * @param fence of the hold
 * @param note that the holder tells, or ""
 * @param client the name of the client, or ""
 * @param owner within the client, or ""
 * @param session the short ID of the session, or ""
 * @param permits of a semaphore
 * @param holders of the lock
 * @param detached whether the hold outlives its session
 */
public record Member(String name, long fence, String note, String client,
        String owner, String session, long permits, long holders,
        boolean detached) {
}
