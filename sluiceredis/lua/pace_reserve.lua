-- Reserves slots of a pacer.
--
-- KEYS[1]  the next free slot and the rest that slots returns
-- KEYS[2]  in strict mode: the epoch
-- ARGV[1]  and ARGV[2] as pacer_read wants them
-- ARGV[3…] pairs: how many nanoseconds of slots a request takes, and how long it
--          would wait for its first. Without any the pacer is only looked at.
--
-- Replies {0, requests granted, whether clamped, the first slot: seconds and
-- nanoseconds ahead of now, the end of the pause, until where void slots reach:
-- likewise, or 0 0; now}.
local stop = epoch(2)
if stop then return stop end
local p, no = pacer_read(1, 1)
if no then return no end
local granted = 0
for i = 3, #ARGV, 2 do
  local takes = tonumber(ARGV[i])
  local fit = pacer_fits(p, takes, 1, tonumber(ARGV[i + 1]))
  p.taken, granted = p.taken + fit * takes, granted + fit
end
pacer_write(p)
return {0, granted, p.clamped, p.s, p.ns, p.ps, p.pns, p.ms, p.mns, now}
