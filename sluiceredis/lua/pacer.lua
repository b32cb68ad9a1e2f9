-- Asks a pacer.
--
-- KEYS[1]  its key
-- KEYS[2]  in strict mode: the epoch
-- ARGV     what is asked for, two numbers as pace_read wants them, and
--   reserve  pairs: how many nanoseconds of slots a request takes, and how long it
--            would wait for its first; without any the pacer is only looked at
--   cancel   the instant at which slots end, how many nanoseconds they are, and the mark
--            when they were reserved: gives them back
--   pause    for how many nanoseconds from now; a pause is only ever prolonged
--   resume   a pause that is over within so many nanoseconds is not changed, and in how
--            many the first slot is: ends the pause, and makes all slots void that were
--            reserved before
--
-- Replies {0, requests granted, or 1 if slots were given back, whether clamped, how many
-- nanoseconds ahead are the first slot as it was found, the end of the pause and the
-- mark, now}.
local stop = epoch(2)
if stop then return stop end
local p, no = pace_read(1, 2)
if no then return no end
local done, free, verb, x, y = 0, p.free, ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
if verb == 'reserve' then
  for i = 4, #ARGV, 2 do
    local takes = tonumber(ARGV[i])
    local fit = pace_fits(p, takes, 1, tonumber(ARGV[i + 1]))
    p.taken, done = p.taken + fit * takes, done + fit
  end
elseif verb == 'cancel' then
  -- A slot that is void ends at a mark or before it, so once all marks have passed no slot
  -- of the future is void.
  local passed = p.mark == 0 and p.free > 0 and (ahead(ARGV[6]) or 0) <= 0
  if (passed or pace_instant(p.mark) == ARGV[6]) and pace_add(p, -y, ARGV[4]) > 0 then done = 1 end
elseif verb == 'pause' and x > p.pause then
  -- A caller that waits for a slot before the end reserves anew, behind those whose
  -- slots are after it.
  p.pause, p.taken, p.changed = x, math.max(0, x - p.free), true
elseif verb == 'resume' and p.pause > x then
  p.mark = math.min(most, math.max(p.free, p.mark + 1)) -- later than the last one, so that the two differ
  p.pause, p.taken, p.changed = 0, y - p.free, true
end
pace_write(p)
return {0, done, p.clamped, free, p.pause, p.mark, now}
