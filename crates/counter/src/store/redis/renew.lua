-- A stream still runs: Ledger::raise, then Ledger::renew.
--
-- ARGV: id, lease, number of totals, and for each: name, total.
-- Answers: leases ended, 1 if the hold was open.
local id, lease = ARGV[1], tonumber(ARGV[2])

sweep()

local known = hold(id)
if not is_there(known) or known.state == ENDED or known.state == SETTLED then
  commit()
  return { leases_ended, 0 }
end
for i = 1, tonumber(ARGV[3]) do
  local name, to = ARGV[2 + 2 * i], tonumber(ARGV[3 + 2 * i])
  local stake = stake_of(known, name)
  if stake then
    local missing = sub(to, add(stake.held, stake.lapsed))
    if missing > 0 then add_to_stake(known, name, missing) end
  end
end
known.from, known.lease = now, lease
put_hold(id, known)
commit()
return { leases_ended, 1 }
