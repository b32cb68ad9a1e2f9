-- Takes from a leaky bucket.
--
-- KEYS[1]  the bucket
-- KEYS[2]  in strict mode: the epoch
-- ARGV[1]  and ARGV[2] as leaky_read wants them
-- ARGV[3…] pairs: what a request costs, in nanoseconds, and how many of those
--          follow one another. Without any the bucket is only looked at.
--
-- Replies {0, requests granted, whether clamped, the level before: seconds,
-- nanoseconds, now}. Who was granted follows from that: see cell.decide.
local stop = epoch(2)
if stop then return stop end
local b, no = leaky_read(1, 1)
if no then return no end
local granted = 0
for i = 3, #ARGV, 2 do
  local cost = tonumber(ARGV[i])
  local fit = leaky_fits(b, cost, tonumber(ARGV[i + 1]))
  b.taken, granted = b.taken + fit * cost, granted + fit
end
leaky_write(b, #ARGV > 2)
return {0, granted, b.clamped, b.s, b.ns, now}
