#!lua flags=allow-oom
-- release: strikes tickets out, of holders and of waiters, and hands the locks
-- over in the same step.
--
-- KEYS: the locks. ARGV: the header, then for each lock IDENTITY and RELEASE
-- (see record.def). An arrival of 0: look for the ticket; a fence of 0: any.
-- Flags:
--   1  nobody gave it back, so the lock-delay that was asked for begins, and
--      nobody is granted it before he is settled where the data may be old
--   2  a ticket of an earlier generation may be there
--   4  it is carried out for the second time
--   8  no ticket, but the detached hold with that fence. CONFLICT: that hold is
--      not detached
--  16  with 8: and those of earlier grants, which a BREAK of all has ended
--  32  a detached hold stays
--
-- A delay, in ms: nobody is granted it for so long from now on.
--
-- Late or repeated it is harmless: ticket and fence must be the ones that
-- stand. The second time the request's ticket suffices, or one of an earlier
-- generation. MISSING: one may yet be put there. See
-- DESIGN.md D3.8 and D10.1.
--@include call.lua

-- The way for every record.
local function general()
    look()
--@include record.lua

local UNCLEAN, MOVES, REPEATS, BY_FENCE, EARLIER, SPARES = 1, 2, 4, 8, 16, 32

-- An earlier generation's ticket, or nil. It had all become this one's, which
-- may have a later ticket there by now.
local function ticket_before(r, identity)
    local t = ticket_of_session(r, identity, 0)
    local old = t and unpack_at('<I4', t.identity)
    return old and old < unpack_at('<I4', identity) and t or nil
end

-- The ticket that is to go, or nil. For the second time it goes whatever it is
-- in these data: it may wait there, or have been granted it anew.
local function ticket_standing(r, identity, place, arrival, fence, flags)
    local repeats = bit.band(flags, REPEATS) ~= 0
    local t = ticket_of(r, identity, place, arrival)
    if not t and bit.band(flags, MOVES) ~= 0 then
        if fence > 0 or not repeats then
            t = ticket_of_session(r, identity, fence)
        end
        t = t or repeats and ticket_before(r, identity) or nil
        if t and not ticket_move(r, t, identity) then
            return nil
        end
    end
    if t and fence > 0 and t.fence ~= fence and not repeats then
        return nil
    end
    return t
end

-- The last of the detached holds up to that fence, or nil. Those before it are
-- struck out.
local function detached_until(r, fence)
    local last
    for place, flags, raw, at in queue_walk(r, r.first) do
        local t = bit.band(flags, GRANTED) ~= 0 and
            ticket_unpack(place, raw, at)
        if t and t.detached and t.fence <= fence then
            if last then
                ticket_strike(r, last)
            end
            last = t
        end
    end
    return last
end

-- Whether such a ticket may yet be put there, by a broker that believes in it.
-- Once a holder has shown itself, such a ticket can only be a wait. It matters
-- only when the release is carried out for the second time. Nobody puts a
-- detached hold there.
local function may_come(r, flags)
    return not settled and bit.band(flags, BY_FENCE) == 0 and (r.id ~= id or
        bit.band(flags, REPEATS) ~= 0 and bereft(r, 0))
end

return function(key, arg, read)
    local place, arrival, fence, seen, flags, delay =
        unpack_at(RELEASE_FORMAT, arg, IDENTITY + 1)
    local raw, wrong = record_check(read)
    if not raw then
        return result(wrong)
    end
    local r = raw ~= '' and head_load(key, raw)
    if not r then
        local gone = settled or bit.band(flags, BY_FENCE) ~= 0
        return result(raw ~= '' and CORRUPT or gone and GONE or MISSING)
    end
    local t
    if bit.band(flags, BY_FENCE) ~= 0 then
        if bit.band(flags, EARLIER) ~= 0 then
            t = detached_until(r, fence)
        else
            t = ticket_of_fence(r, fence)
        end
        if t and not t.detached and bit.band(flags, REPEATS) == 0 then
            return result(CONFLICT)
        end
    else
        t = ticket_standing(r, sub(arg, 1, IDENTITY), place, arrival, fence,
            flags)
        if t and t.detached and bit.band(flags, SPARES) ~= 0 then
            t = nil
        end
    end
    if not t then
        return result(may_come(r, flags) and MISSING or GONE)
    end
    -- A detached hold has no broker that knows whether it has ended.
    local over = bit.band(flags, BY_FENCE) ~= 0 and steady and r.id == id and
        t.ends <= now
    if bit.band(t.flags, GRANTED) ~= 0 then
        local ended = over and t.ends or now
        hold_over(r, t, ended)
        if (over or bit.band(flags, UNCLEAN) ~= 0) and t.delay > 0 and
            bit.band(t.flags, CLAIMED) ~= 0 then
            delay_from(r, t, ended)
        end
        -- A later connection may have claimed what was lost; or the data are
        -- older than the first time, and somebody has been granted it since.
        if bit.band(flags, UNCLEAN + REPEATS) ~= 0 and bereft(r, 0) and
            not settled then
            r.id = NO_ID
        end
    end
    ticket_strike(r, t)
    if delay > 0 and not over then
        delay_from(r, {delay = delay}, now)
    end
    if r.live > 0 then
        adopt(r)
    end
    expire(r)
    local grants = r.live > 0 and serve(r, seen) or nil
    result(over and GONE or OK, 0, 0, 0, 0, ask_later(r), 0, grants)
    record_store(r)
end
end

-- From the count of tickets to where those that wait begin.
local EMPTY = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local NO_DELAY = '\0\0\0\0'
local NEVER_DELAYED = '\0\0\0\0\0\0\0\0\0\0\0\0'
-- Version and flags of a plain record, and of a hold that was renewed for long.
local PLAIN_FLAGS, KEPT_FLAGS = '\1\0', '\1\8'
local PLAIN_WIDTH, NO_LIMIT = '\104\0', '\0\0\0\0'
local idle_after = unpack_at('<I4', header, HEADER_IDLE_AFTER + 1)
local slow

-- A short cut: the ticket is the only one of a plain record, with words or
-- without. False where not.
local function release_plain(key, arg, raw)
    local flags = sub(raw, 1, HEAD_WIDTH)
    if sub(raw, HEAD_STORED + 1, HEAD_LONGEST) ~= SOLE or
        flags ~= PLAIN_FLAGS and flags ~= KEPT_FLAGS or
        sub(raw, HEAD_LIMIT + 1, HEAD_FENCE) ~= NO_LIMIT or
        byte(raw, HEAD + 1) ~= 7 or
        sub(raw, HEAD + TICKET_IDENTITY + 1, HEAD + TICKET_BROKER) ~=
            sub(arg, 1, IDENTITY) or
        sub(raw, HEAD + TICKET_ARRIVAL + 1, HEAD + TICKET_ENDS) ~=
            sub(arg, IDENTITY + RELEASE_ARRIVAL + 1, IDENTITY + RELEASE_SEEN) or
        sub(raw, HEAD_DELAYED + 1, HEAD_FORGET) ~= NEVER_DELAYED or
        sub(arg, IDENTITY + RELEASE_DELAY + 1) ~= NO_DELAY or
        (byte(arg, IDENTITY + RELEASE_FLAGS + 1) ~= 0 and
            sub(raw, HEAD + TICKET_DELAY + 1, HEAD + TICKET_SHOWN) ~= NO_DELAY)
    then
        return false
    end
    local head = PLAIN_WIDTH .. sub(raw, HEAD_LIMIT + 1, HEAD_STORED) .. EMPTY
    if flags == KEPT_FLAGS then
        look()
        local term = math.max(idle_after,
            math.floor(idle_after / 2) +
                fence_ahead(unpack_at('<d', raw, HEAD_FENCE + 1)))
        call('SETRANGE', key, TEXT(HEAD_FLAGS), '\0' .. head ..
            sub(raw, HEAD_TYPICAL + 1, HEAD_FORGET) .. pack('<d', now + term))
        call('PEXPIRE', key, term)
    else
        call('SETRANGE', key, TEXT(HEAD_WIDTH), head)
    end
    out[#out + 1] = RESULT_OK .. EMPTY
    return true
end

for i = 1, #KEYS do
    local raw = pcall_redis('GETRANGE', KEYS[i], '0', TEXT(HEAD + TICKET - 1))
    if type(raw) ~= 'string'
        or not release_plain(KEYS[i], ARGV[i + 1], raw) then
        slow = slow or general()
        slow(KEYS[i], ARGV[i + 1], raw)
    end
end
return reply()
