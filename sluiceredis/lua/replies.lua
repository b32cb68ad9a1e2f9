-- What scripts have in common besides the clock.

-- whole formats a whole number. Lua itself would write 1.79e+15; %.0f is right,
-- too, and takes three times as long.
local function whole(x) return string.format('%d', x) end

-- failed returns what to reply when a command for KEYS[i] failed, as pcall reports
-- it: that the key is of another type, or what the server says.
local function failed(reply, i)
  if string.sub(reply.err, 1, 9) == 'WRONGTYPE' then return {-1, now, i - 1} end
  return reply
end

-- unreadable returns what to reply when KEYS[i] does not hold what it should.
local function unreadable(i) return {-2, now, i - 1} end

-- kinds has the rules of each kind of limit: how many arguments its read takes, what it
-- found that is replied, so that a decision can be computed again, and its functions.
-- What read returns has the room that is left and how much of it was taken. Only for a
-- sliding window is it asked when more will fit.
local kinds = {}
