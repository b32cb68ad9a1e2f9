-- Takes from a fixed window.
--
-- KEYS[1]  the window
-- KEYS[2]  in strict mode: the epoch
-- ARGV[1]  to ARGV[3] as fixed_read wants them
-- ARGV[4…] pairs: units of a request, and how many of those follow one another
--
-- Replies {0, requests granted, whether clamped, units used before, microseconds
-- until the window is over, now}.
local stop = epoch(2)
if stop then return stop end
local f, no = fixed_read(1, 1)
if no then return no end
local granted = 0
for i = 4, #ARGV, 2 do
  local n = tonumber(ARGV[i])
  local fit = fixed_fits(f, n, tonumber(ARGV[i + 1]))
  f.taken, granted = f.taken + fit * n, granted + fit
end
fixed_write(f, #ARGV > 3)
return {0, granted, f.clamped, f.used, f.left, now}
