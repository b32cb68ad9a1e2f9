-- Takes from a sliding window.
--
-- KEYS[1]  the window
-- KEYS[2]  in strict mode: the epoch
-- ARGV[1]  to ARGV[3] as log_read wants them
-- ARGV[4…] pairs: units of a request, and how many of those follow one another
--
-- Replies {0, clamped, units in the window before, the newest instant in it or 0,
-- for each pair: how many were granted, when the next of them would fit; and last
-- now}.
local stop = epoch(2)
if stop then return stop end
local l, no = log_read(1, 1)
if no then return no end
local reply = {0, l.clamped, l.used, l.newest}
for i = 4, #ARGV, 2 do
  local n = tonumber(ARGV[i])
  local fit = log_fits(l, n, tonumber(ARGV[i + 1]))
  l.taken = l.taken + fit * n
  reply[#reply + 1] = fit
  reply[#reply + 1] = log_when(l, n)
end
log_write(l, #ARGV > 3)
reply[#reply + 1] = now
return reply
