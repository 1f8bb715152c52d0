#!lua flags=allow-oom
-- release: strikes tickets out, of holders and of waiters, and hands the locks
-- over in the same step.
--
-- KEYS: the locks. ARGV: the header, then for each lock
--   identity c36, place I4, arrival d (0: look for the ticket), fence d (0: any),
--   seen d (a fence)
-- Late or repeated it is harmless: ticket and fence must be the ones that stand.
--@include record.lua

local function release(key, arg)
    local place, arrival, fence, seen = unpack_at('<I4ddd', arg, 37)
    local raw, wrong = read_record(key)
    if not raw then
        return result(wrong)
    end
    local r = raw ~= '' and head_load(key, raw)
    if not r then
        return result(raw == '' and GONE or CORRUPT)
    end
    local t = ticket_of(r, sub(arg, 1, 36), place, arrival)
    if not t or (fence > 0 and t.fence ~= fence) then
        return result(GONE)
    end
    ticket_strike(r, t)
    local grants
    if r.live > 0 then
        expire(r)
        grants = serve(r, seen)
    end
    result(OK, 0, 0, t.fence, 0, 0, 0, grants)
    record_store(r)
end

for i = 1, #KEYS do
    release(KEYS[i], ARGV[i + 1])
end
return table.concat(out)
