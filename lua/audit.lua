#!lua flags=no-writes,allow-cross-slot-keys
-- audit: some of the node's records, for who looks whether all is well.
--
-- No KEYS: the records are those that SCAN finds next, whatever their slots
-- are. ARGV: the header, then AUDIT (see record.def) and the cursor in digits.
-- After the time, the id and a result: AUDITED, the next cursor (0: that was
-- all), and SIGHTs, each with its name without what the key has around it.
-- Of a long queue only the front is looked at.
--@include call.lua
look(true)
--@include record.lua

-- A hold, or a wait, is old; a hold was not renewed when it should have been,
-- as its broker or that broker's session may be gone.
local OLD_HOLD, OLD_WAIT, LATE_HOLD = 1, 2, 4

-- Damage: another type of key, no lock's name, a later version. No record, or
-- words that do not fit. Other counts than the tickets', a key that never
-- expires, a fence far ahead of the clock.
local WRONG_TYPE, WRONG_NAME, WRONG_VERSION, WRONG_RECORD = 1, 2, 3, 4
local WRONG_COUNTS, WRONG_EXPIRY, WRONG_FENCE = 5, 6, 7

local WALK_MAX, NAME_MAX, SIGHTS_MAX = 64, 255, 512

local count, held_from, wait_from = unpack_at(AUDIT_FORMAT, ARGV[2])
local before = sub(channel, 1, #channel - 8) .. ':{'
local records, held, waiting, nobodys, left = 0, 0, 0, 0, 0
local suspects = {}

local function suspect(key, flags, wrong, held_age, wait_age)
    local name = sub(key, #before + 1, #key - 1)
    if sub(key, #key) ~= '}' or name == '' or #name > NAME_MAX then
        name = sub(key, #before + 1, #before + NAME_MAX)
        wrong = WRONG_NAME
    end
    if flags == 0 and wrong == 0 then
        return
    elseif #suspects == SIGHTS_MAX then
        left = left + 1
    else
        suspects[#suspects + 1] = pack(SUSPECT_FORMAT, flags, wrong, #name,
            held_age or 0, wait_age or 0) .. name
    end
end

-- Whether the broker of a hold should have renewed it before: that is due when
-- a third of the lease is over. The last stretch of a lease= is not renewed.
local function is_late(ends, hold, lease)
    return ends - now < lease / 2 and (hold == 0 or ends < hold)
end

-- Whether a ticket's words fit together, and into it.
local function words_fit(r, words, raw, at)
    if words == 0 then
        return true
    end
    local from, to = at + TICKET, at + TICKET + words
    for _ = 1, 3 do
        from = from + 1 + (from < to and byte(raw, from) or words)
    end
    return from <= to and words <= r.width - TICKET
end

-- Goes along the tickets, up to so many. Ends of leases count where they are
-- this clock's.
local function look_at(key, r)
    local trusted, sound = r.id == id and steady, true
    local live, granted, used, intents, walked = 0, 0, 0, 0, 0
    local holds, waits, held_age, wait_age, late = 0, 0, 0, 0, false
    for _, flags, from, at in queue_walk(r, r.first) do
        walked = walked + 1
        if walked > WALK_MAX then
            break
        end
        local has = bit.band(flags, GRANTED) ~= 0
        local _, mode, words, permits, _, _, ends, hold, lease, _, _, since =
            unpack_at(TICKET_FORMAT, from, at)
        local over = trusted and ends <= now
        local age = max(now - since / 1000, 0)
        if flags ~= 0 then
            live = live + 1
        end
        sound = sound and (flags == 0 or words_fit(r, words, from, at))
        if has then
            granted, used = granted + 1, used + permits
            intents = intents + (modes[mode] or modes[EXCLUSIVE]).intents
        end
        if has and not over then
            holds, held_age = holds + 1, max(held_age, age)
            nobodys = nobodys + (bit.band(mode, DETACHED) > 0 and 1 or 0)
            late = late or trusted and
                bit.band(flags, CLAIMED + BROKEN) == CLAIMED and
                is_late(ends, hold, lease)
        elseif flags ~= 0 and not over then
            waits, wait_age = waits + 1, max(wait_age, age)
        end
    end
    local whole = walked <= WALK_MAX
    held = held + (whole and holds or r.granted)
    waiting = waiting + (whole and waits or r.live - r.granted)
    local wrong = 0
    if not sound then
        wrong = WRONG_RECORD
    elseif whole and
        (live ~= r.live or granted ~= r.granted or used ~= r.used or
            intents ~= r.intents) then
        wrong = WRONG_COUNTS
    elseif call('PTTL', key) == -1 then
        wrong = WRONG_EXPIRY
    elseif r.fence > now_us + FENCE_FAR then
        wrong = WRONG_FENCE
    end
    suspect(key, (holds > 0 and held_age >= held_from and OLD_HOLD or 0) +
        (waits > 0 and wait_age >= wait_from and OLD_WAIT or 0) +
        (late and LATE_HOLD or 0), wrong, held_age, wait_age)
end

-- Keys of a slot that is on its way from or to another node are looked at when
-- they are there.
local function look_for(key)
    -- The head, and a ticket with all the words that it may have.
    local raw = pcall_redis('GETRANGE', key, '0',
        TEXT(HEAD + TICKET + 255))
    if type(raw) == 'table' and string.find(raw.err, 'WRONGTYPE', 1, true) then
        records = records + 1
        return suspect(key, 0, WRONG_TYPE)
    end
    if type(raw) == 'table' or raw == '' then
        return
    end
    records = records + 1
    local good, wrong = record_check(raw)
    local r = good and head_load(key, raw)
    if r then
        local whole = max(floor((#raw - HEAD) / r.width), 1)
        r.raw = sub(raw, 1, HEAD + whole * r.width)
        return look_at(key, r)
    end
    return suspect(key, 0, wrong == NEWER and WRONG_VERSION or WRONG_RECORD)
end

local found = call('SCAN', sub(ARGV[2], AUDIT + 1), 'MATCH', before .. '*',
    'COUNT', count)
for _, key in ipairs(found[2]) do
    look_for(key)
end
result(OK)
out[#out + 1] = pack(AUDITED_FORMAT, records, held, waiting, nobodys, #suspects,
    left, #found[1]) .. found[1]
out[#out + 1] = table.concat(suspects)
return reply()
